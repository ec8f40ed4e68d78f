"""The engine room: leases tasks, runs what fronts registered for them, and settles. Knows no front and no database."""
