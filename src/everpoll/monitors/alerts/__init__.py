"""Alerts: incidents as tasks, the messages about them, and the channels that deliver the messages."""
