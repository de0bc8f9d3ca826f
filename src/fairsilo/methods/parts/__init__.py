"""One idea of one paper per file, both halves together."""
