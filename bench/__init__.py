"""The benchmark: Duly beside the bare engine, in one run. Run it with `make bench`."""
