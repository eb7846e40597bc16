"""The training loop and what it needs: setup, step, checkpoints, provenance, metrics."""
