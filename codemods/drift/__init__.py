"""Rules about API drift, and the table that they read."""
