"""Operating system and terminal: errors, paths, files, progress, machine."""
