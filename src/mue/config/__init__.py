"""Everything a run depends on, as values."""
