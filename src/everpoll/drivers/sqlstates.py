"""The SQLSTATEs of Postgres after which the same statement may succeed later: the driver and PostgREST report them."""

# By the first two characters: connection, transaction rollback, resources, operator intervention, system.
AWAY_CLASSES = ("08", "40", "53", "57", "58")
# An idle session or transaction that the server ended, a server that turned read-only (failover).
AWAY_STATES = ("25006", "25P03")
LOCKED = "55P03"
