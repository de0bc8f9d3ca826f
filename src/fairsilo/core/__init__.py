"""What a method is and what a round does."""
