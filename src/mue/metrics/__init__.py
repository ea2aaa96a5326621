"""Pure functions from tensors to numbers; none of them knows a model."""
