"""Run log: logs the start, the end and the failures of each run of a job or a row, each once.

    debug     a run starts · a job snoozes
    info      done · canceled · handed back
    warning   an attempt failed, and another follows · done, and its result is not as it was
    error     failed for good, with the traceback

Promises: while neither debug nor info is on, an ordinary end costs one comparison, since levels are read once for each
batch of leases. Lines about ends and lines about failures are limited separately (`RateLimitedLog`). Looks of watches
and of services are logged by the packages of these fronts.
"""

import logging

import msgspec

from everpoll.engine.calls import own_frames
from everpoll.engine.rate_limited_log import RateLimitedLog
from everpoll.engine.work import Run
from everpoll.logs.context import Fields, about
from everpoll.policy import human
from everpoll.stores.contract import Again, Ended, Settlement

LOGGERS = {"job": logging.getLogger("everpoll.jobs"), "table": logging.getLogger("everpoll.tables")}
"""The logger for each kind of task. The packages of the other fronts log tasks of theirs."""
FAILURES = frozenset({"failed", "retry"})
ERROR_CHARS = 500
"""How much of an error's text a line of the log has; the trail has more."""


class RunLogger:
    """Logs the runs of one worker."""

    def __init__(self) -> None:
        self._ends = {kind: RateLimitedLog(logger) for kind, logger in LOGGERS.items()}
        self._failures = {kind: RateLimitedLog(logger) for kind, logger in LOGGERS.items()}

    def wanted(self) -> tuple[bool, bool]:
        """Return whether to log starts, and whether to log ordinary ends. Called once for each batch."""
        ends = any(logger.isEnabledFor(logging.INFO) for logger in LOGGERS.values())
        return ends and any(logger.isEnabledFor(logging.DEBUG) for logger in LOGGERS.values()), ends

    def started(self, run: Run) -> None:
        """Log that a handler begins."""
        logger = LOGGERS.get(run.kind)
        if logger is not None and logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s: starts, attempt %d", run.lease.label, run.lease.attempt, extra=about(**run.log_fields()))

    def ended(self, run: Run, settlement: Settlement, took_s: float | None) -> None:
        """Log how a run ended; `took_s` is None where its handler never began."""
        if run.kind not in LOGGERS or run.is_logged:
            return
        note = {} if settlement.note is None else msgspec.json.decode(settlement.note)
        fields = run.log_fields()
        fields["duration_s"] = None if took_s is None else round(took_s, 6)
        fields["outcome"] = note.get("what") or (settlement.state if isinstance(settlement, Ended) else "again")
        if fields["outcome"] in FAILURES:
            self._failed(run, note, fields, is_last=isinstance(settlement, Ended))
        elif isinstance(settlement, Ended) and settlement.state == "done":
            self._done(run, note, fields)
        else:
            self._stopped(run, settlement, note, fields)

    def flush(self) -> None:
        """Log the summaries of withheld lines, before the worker ends."""
        for one in (*self._ends.values(), *self._failures.values()):
            one.flush()

    def _failed(self, run: Run, note: Fields, fields: Fields, *, is_last: bool) -> None:
        error, run.error = run.error, None  # its frames hold the run
        said = f"{note['type']}: {note['error']}" if "type" in note else str(note.get("error", ""))
        fields["error_type"] = note.get("type")
        level = logging.ERROR if is_last else logging.WARNING
        # The traceback is logged for the last attempt only; the trail has those of all attempts.
        exc_info = (type(error), error, own_frames(error)) if is_last and error is not None else None
        self._failures[run.kind].log(
            level,
            f"{run.lease.name} {fields['outcome']}",
            "%s: %s (%s)",
            run.lease.label,
            note.get("why", "has failed"),
            said[:ERROR_CHARS],
            extra=about(**fields),
            exc_info=exc_info,
        )

    def _done(self, run: Run, note: Fields, fields: Fields) -> None:
        attempt = f", attempt {run.lease.attempt}" if run.lease.attempt > 1 else ""
        took = human(fields["duration_s"] or 0.0)
        lines, extra, subject = self._ends[run.kind], about(**fields), f"{run.lease.name} done"
        if "why" in note:
            lines.log(
                logging.WARNING,
                subject,
                "%s: done in %s%s: %s",
                run.lease.label,
                took,
                attempt,
                note["why"],
                extra=extra,
            )
        else:
            lines.log(logging.INFO, subject, "%s: done in %s%s", run.lease.label, took, attempt, extra=extra)

    def _stopped(self, run: Run, settlement: Settlement, note: Fields, fields: Fields) -> None:
        outcome = fields["outcome"]
        level = logging.DEBUG if isinstance(settlement, Again) and outcome == "snooze" else logging.INFO
        why = note.get("why") or note.get("error") or ""
        word = {"snooze": "snoozes", "hand-back": "handed back"}.get(outcome, outcome)
        text, subject = "%s: %s: %s" if why else "%s: %s%s", f"{run.lease.name} {word}"
        self._ends[run.kind].log(level, subject, text, run.lease.label, word, why, extra=about(**fields))
