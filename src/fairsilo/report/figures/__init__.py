"""The papers' diagnostics as figures: one per file, under the name of the diagnostic that it draws.

A figure is written as numbers (CSV), drawings (SVG, PNG) and what they show (JSON), all under one name. `registry.py`
lists the figures, `files.py` writes and reads them, `drawing.py` holds what drawings share.
"""
