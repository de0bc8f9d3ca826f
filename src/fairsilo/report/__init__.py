"""Tables, figures and the HTML page: they read runs and know no engine."""
