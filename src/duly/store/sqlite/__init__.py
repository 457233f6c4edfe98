"""The embedded engine: one file, many processes, apsw."""
