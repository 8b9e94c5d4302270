"""Rules about what ``pl.run_scoped`` allocates, and for whom."""
