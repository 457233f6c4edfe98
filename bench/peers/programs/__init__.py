"""What runs inside the peers' environments. Nothing here imports Duly or the benchmark."""
