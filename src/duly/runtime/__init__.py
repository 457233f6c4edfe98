"""Long-lived roles over the store: worker, supervisor, watchdog, janitor."""
