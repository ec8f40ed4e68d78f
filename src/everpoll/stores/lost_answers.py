"""Lost answers: whether an earlier try, whose answer never arrived, has settled a task."""

from everpoll.stores.contract import Again, Settlement, TaskInfo


def was_settled(incarnation: int, settlement: Settlement, info: TaskInfo | None) -> bool:
    """Return whether the task is where this settlement would have put it; only a rescue could have come in between."""
    if info is None:
        return False
    rescued = bool(info.trail) and info.trail[-1].get("by") == "rescue"
    if isinstance(settlement, Again):
        return not rescued
    is_ours = info.state == settlement.state and info.incarnation == incarnation
    return is_ours and (settlement.note is None or not rescued)
