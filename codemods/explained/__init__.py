"""Errors that have no mechanical fix: each rule names one, says why it happens and what to write instead."""
