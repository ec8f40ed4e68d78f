"""Alerts: incidents as tasks, what is sent about them, and the channels that carry it."""
