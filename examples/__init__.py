"""Whole systems on everpoll, each started with one command: `python -m examples.test_runner`."""
