"""Benchmarks: always side by side with a reference, in one run, printed as ratios."""
