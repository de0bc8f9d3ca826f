"""A local web page over run folders: it reads what they hold and knows no engine."""
