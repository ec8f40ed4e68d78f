"""Queries that run in a remote cloud, watched until they have ended: `python -m examples.shell_query`."""
