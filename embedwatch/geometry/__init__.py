"""Pure functions on tensors: no state, no input, no output."""
