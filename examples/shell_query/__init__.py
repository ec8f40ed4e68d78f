"""Queries that run in somebody else's cloud, watched until they have ended: `python -m examples.shell_query`."""
