"""How a live model is seen: places are found, hooks attached, rows sampled. The model does what it did before."""
