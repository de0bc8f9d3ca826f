"""What must hold for every method, also for one of another package: see `laws.check.check`."""
