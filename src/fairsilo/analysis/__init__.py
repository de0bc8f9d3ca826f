"""Metrics, statistics and diagnostics of runs."""
