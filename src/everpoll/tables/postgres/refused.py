"""Which errors say that a table refuses a change: its triggers, its constraints, the types of its columns.

Such a statement has changed nothing, and what it was about may be tried in smaller parts. An outage or a missing column
is none of these: see `drivers.postgres.faults`.
"""

import asyncpg

from everpoll.errors import BadInput

REFUSED = (asyncpg.PostgresError, BadInput)
"""As a lane raises them."""
