"""What people do with an encoder: embed, search, find duplicates, inspect data, show views."""
