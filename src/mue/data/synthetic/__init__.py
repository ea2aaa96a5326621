"""Data sets that are generated, with known probabilities."""
