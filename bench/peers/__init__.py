"""Other task queues, measured beside Duly in the same run: `make bench PEERS=1`.

Each has an environment of its own with pinned versions, its documented settings for high
throughput, and a program in `programs/` that only its own environment runs.
"""
