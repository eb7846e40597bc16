"""Applications of an encoder: embed, search, find duplicates, inspect data, show views."""
