"""The rule families."""
