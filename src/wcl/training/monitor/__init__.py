"""Collecting the metrics of a run and writing them to its folder and the terminal."""

from wcl.training.monitor.monitor import Monitor

__all__ = ["Monitor"]
