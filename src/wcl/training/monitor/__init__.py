"""What is measured while training, and where it goes."""

from wcl.training.monitor.monitor import Monitor

__all__ = ["Monitor"]
