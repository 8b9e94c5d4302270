"""Rules about what kernel bodies return."""
