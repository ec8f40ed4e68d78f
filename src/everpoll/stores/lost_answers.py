"""Lost answers: decides whether an earlier try, whose answer never arrived, has settled a task."""

from everpoll.stores.contract import Again, Settlement, TaskInfo


def was_settled(incarnation: int, settlement: Settlement, info: TaskInfo | None) -> bool:
    """Return True if the task is in the state that this settlement would have caused, and no rescue caused it."""
    if info is None:
        return False
    rescued = bool(info.trail) and info.trail[-1].get("by") == "rescue"
    if isinstance(settlement, Again):
        return not rescued
    is_ours = info.state == settlement.state and info.incarnation == incarnation
    return is_ours and (settlement.note is None or not rescued)
