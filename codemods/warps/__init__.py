"""Rules about warp-level regions."""
