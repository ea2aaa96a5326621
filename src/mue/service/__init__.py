"""The models as a service over HTTP, and one page to look at their answers."""
