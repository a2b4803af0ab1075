"""Two spaces that hold the same items: whether they may meet, maps from one into the other, and what to do with it."""
