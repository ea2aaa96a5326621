"""The run folder: what it is, to read and to write. It knows nothing of training."""
