"""Twenty queries of different fates, and how each must end."""

from dataclasses import dataclass, field

from examples.shell_query.fates import ANSWER_LOST, LOST, NEVER, SILENT, Fate, Trouble, late, status

STATUS = "Retrieve AsyncActivityStatus"
RESTART_AT_S = 240.0
"""When the cloud is restarted, in the middle of it all."""
RESTART_LASTS_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One query."""

    name: str
    fate: Fate = field(default_factory=Fate)
    troubles: tuple[tuple[str, Trouble | None], ...] = ()
    """What happens to its next requests of a kind, in order."""
    sql: str = "SELECT SubscriberKey FROM _Subscribers"
    ends: str = "ready"
    cancel_after_s: float | None = None
    """When a user cancels it."""
    is_begun: bool = True
    """False: there is only its row in the business table; the process died before it could begin the run."""


STORIES = (
    Story(name="quick", fate=Fate(runs_s=4)),
    Story(name="five-minutes", fate=Fate(runs_s=300)),
    Story(name="odd-spelling", fate=Fate(runs_s=12, complete="  COMPLETE ")),
    Story(name="no-rows", fate=Fate(runs_s=25, rows=0)),
    Story(name="rows-come-late", fate=Fate(runs_s=10, rows_after_s=11)),
    Story(name="rows-never-come", fate=Fate(runs_s=10, rows_after_s=NEVER), ends="failed"),
    Story(name="error-with-message", fate=Fate(runs_s=40, error="Invalid column name 'Emial'"), ends="failed"),
    Story(name="error-without-one", fate=Fate(runs_s=15, error=""), ends="failed"),
    Story(
        name="date-while-queued",
        fate=Fate(runs_s=95, completed_date_after_s=1),
    ),
    Story(
        name="stays-queued",
        fate=Fate(runs_s=50, completed_date_after_s=1, reported_after_s=NEVER, rows=0),
    ),
    Story(name="no-sign-at-all", fate=Fate(runs_s=60, queued_s=NEVER, reported_after_s=NEVER, rows=0)),
    Story(
        name="flaps-not-running",
        fate=Fate(runs_s=150, completed_date_after_s=1, reported_after_s=NEVER, not_running=((20, 38),)),
    ),
    Story(name="seen-by-the-probe", fate=Fate(runs_s=35, reported_after_s=NEVER)),
    Story(name="object-id-missing", fate=Fate(runs_s=30, object_id_missing=True, completed_date_after_s=2)),
    Story(name="start-answer-lost", fate=Fate(runs_s=70), troubles=(("Perform Start", ANSWER_LOST),)),
    Story(
        name="cloud-is-unwell",
        fate=Fate(runs_s=90),
        troubles=(
            (STATUS, status(500)),
            (STATUS, status(429, retry_after_s=45)),
            (STATUS, LOST),
            (STATUS, SILENT),
            (STATUS, late(6)),
            ("Delete QueryDefinition", ANSWER_LOST),
        ),
    ),
    Story(name="task-id-forgotten", fate=Fate(runs_s=80, forgotten=(3, 75))),
    Story(name="canceled", fate=Fate(runs_s=NEVER), cancel_after_s=100, ends="canceled"),
    Story(name="never-ends", fate=Fate(runs_s=NEVER), ends="timed_out"),
    Story(name="only-a-row", fate=Fate(runs_s=20), is_begun=False),
)
