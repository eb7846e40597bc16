"""Backbones, projection heads, the encoder, its weight files and pretrained weights."""
