"""Annotated slices in one form."""
