"""Checks: tasks of the engine that look at services and are always due again."""
