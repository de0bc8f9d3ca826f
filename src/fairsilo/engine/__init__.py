"""Where silos run: the same method code under every engine."""
