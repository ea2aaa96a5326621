"""From a built model and a data set to weights."""
