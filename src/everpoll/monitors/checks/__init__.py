"""Checks: the looks at services, as tasks of the engine that are always due again."""
