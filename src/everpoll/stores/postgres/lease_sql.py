"""SQL that `lease` and `lease_run` share: the columns of tasks that differ from the defaults, and waiting times."""

from everpoll.stores.leases import ALIKE_SHARE

DETAILS = ", ".join(
    f"array_agg(g.{column}) as {name}"
    for column, name in (
        *(("id", "ids"), ("attempt", "attempts"), ("memory", "memories"), ("key", "keys"), ("rescues", "rescues")),
        *(("version", "versions"), ("cancel_requested", "canceled"), ("limit_key", "limit_keys")),
    )
)
"""Columns returned only for tasks that differ from the defaults: most tasks do not, and returning these columns for all
would cost as much as leasing them."""
HAS_DETAILS = """g.attempt <> g.sequence or g.memory is not null or g.key is not null or g.rescues > 0 or g.version <> 1
            or g.cancel_requested"""
DIFFER = f"max(m.due_at) - min(m.first_due_at) > (now() - max(m.due_at)) / {round(1 / ALIKE_SHARE)}"
"""True: return the waiting time of each task. False: return one for all."""
WAITED = """case when r.differ then m.waited_us else
               array[date_part('epoch', now() - r.last_at + (r.last_at - r.first_at) / 2) * 1e6::float8] end"""
