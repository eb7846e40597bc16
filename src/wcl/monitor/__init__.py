"""What is measured while training, and where it goes."""

from wcl.monitor.monitor import Monitor

__all__ = ["Monitor"]
