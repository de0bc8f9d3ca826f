"""A fair search for settings: the same trials for every method, judged by the silos' validation data alone."""
