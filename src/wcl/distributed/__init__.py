"""Processes of a run: launching, collectives, batch sharding, synchronized batch norm."""
