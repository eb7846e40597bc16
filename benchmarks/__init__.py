"""Benchmarks: speed and memory as ratios of alternatives measured in one run.

`python -m benchmarks` lists them. The folder is not installed with the package.
"""
