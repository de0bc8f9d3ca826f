"""The papers' tables: what each was, how it is run here, what came out, and how far that is from the paper."""
