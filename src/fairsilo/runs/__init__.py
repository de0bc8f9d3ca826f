"""Run folders: making them, comparing them, putting a trained run to use."""
