"""LIDC-IDRI, read from each of the forms in which it goes around."""
