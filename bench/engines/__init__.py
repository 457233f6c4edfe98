"""Fresh databases on each engine, and what can be read from them about a run."""
