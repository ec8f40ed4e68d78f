"""The engine: leases tasks, runs what fronts registered for them, and settles them. Knows no front and no database."""
