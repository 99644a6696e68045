"""Ways to build f, and the race between them."""
