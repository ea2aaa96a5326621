"""Networks that receive their parts; only `build` knows numbers."""
