"""Which method suits a federation: short pilots on its own training data, and what they allow to say."""
