"""Times of training and answering, and the work they cannot do without."""
