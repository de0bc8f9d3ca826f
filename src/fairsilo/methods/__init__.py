"""The catalogue, its parts, and the mathematics that several parts share."""
