"""What the comparison with a reference finds, and what it finds where nothing is: on real embeddings, beside others."""
