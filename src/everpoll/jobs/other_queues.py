"""Method names of other queues, and everpoll's names for them."""

ENQUEUE = frozenset(
    {
        *("delay", "apply_async", "send", "send_with_options", "kiq", "kick", "schedule"),
        *("defer", "defer_async", "enqueue_async", "enqueue_job", "perform_async", "submit"),
    }
)
CALL = frozenset({"s", "si", "signature", "subtask", "message"})
OPTIONS = frozenset({"configure", "with_options", "set", "kicker"})


def meant(job: str, attribute: str) -> str:
    """Return everpoll's name for an attribute of other queues' jobs; empty if the attribute is unknown."""
    if attribute in ENQUEUE:
        return f"write await {job}.enqueue(…), or {job}.sync.enqueue(…) where there is no event loop"
    if attribute in CALL:
        return f"write {job}.call(…), for chains and groups"
    if attribute in OPTIONS:
        return f'write {job}.options(delay="5s", priority=1).enqueue(…)'
    return ""
