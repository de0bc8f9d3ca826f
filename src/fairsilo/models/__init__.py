"""Networks: they know nothing of federation."""
