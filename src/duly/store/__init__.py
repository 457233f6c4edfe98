"""The durable truth: one protocol, one folder for each engine."""
