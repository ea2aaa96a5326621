"""What only makes it faster on a GPU."""
