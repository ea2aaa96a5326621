"""Figures of answers, probabilities, trainings and slices, one module per kind of picture."""
