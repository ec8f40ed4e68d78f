"""What `lease` and `lease_run` answer alike, in SQL: which leased tasks are told in full, and how long they waited."""

from everpoll.stores.leases import ALIKE_SHARE

ODD_TASKS = ", ".join(
    f"array_agg(g.{column}) as {name}"
    for column, name in (
        *(("id", "ids"), ("attempt", "attempts"), ("memory", "memories"), ("key", "keys"), ("rescues", "rescues")),
        *(("version", "versions"), ("cancel_requested", "canceled"), ("limit_key", "limit_keys")),
    )
)
"""What is told of odd tasks only: arrays of what most tasks lack would cost as much as leasing them."""
IS_ODD = """g.attempt <> g.sequence or g.memory is not null or g.key is not null or g.rescues > 0 or g.version <> 1
            or g.cancel_requested"""
DIFFER = f"max(m.due_at) - min(m.first_due_at) > (now() - max(m.due_at)) / {round(1 / ALIKE_SHARE)}"
"""Whether each waiting time is told, or one for all."""
WAITED = """case when r.differ then m.waited_us else
               array[date_part('epoch', now() - r.last_at + (r.last_at - r.first_at) / 2) * 1e6::float8] end"""
