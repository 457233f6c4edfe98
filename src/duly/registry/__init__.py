"""Tasks as values: their arguments and results as checked JSON, and how that is described."""
