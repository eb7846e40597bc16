"""Backbones, projection heads, the encoder and its weight files."""
