"""From a predictor and cases to numbers."""
