"""Inputs and answers: drawn or read, always as whole batches on the device that uses them."""
