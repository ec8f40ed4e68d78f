"""Checks the options of `app.watch` and makes the policy of a watch of them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from everpoll.errors import BadInput
from everpoll.policy import Backoff, Breaker, Budget, Duration, Rate, flaw_of, seconds, shown, whole_number
from everpoll.watches.cadence import Cadence, cadence_of
from everpoll.watches.decisions.policy import DEFAULT_CLEANUP
from everpoll.watches.faults import Classify, rule_of_types

NAME_LIMIT = 100
PRIORITY_LIMIT = 1_000_000_000
STEP_CALLS = 3
"""The most calls of one step: adopt, cancel and look; or adopt, start and adopt. Most steps make one."""
FALLBACK = Backoff("2s", factor=2, cap="30s", jitter=0.2)
"""The cadence that replaces a cadence of the user that has failed."""


class WatchOptions(TypedDict, total=False):
    """What `app.watch` takes in addition to `every` and `budget`."""

    name: str
    """Default: the function's own name."""
    queue: str
    priority: int
    timeout: Duration
    """How long one look, start, cancel or cleanup may take; at most what is left of its budget. After that the call has

    failed, and is tried again. Default: 1 minute."""
    version: int
    """Raise it when this code cannot read rows of the version before; see `@….migrate`."""
    remote: str | Callable[[Any], str]
    """The remote (a host, a tenant), or a function from the operation to it. `rate` and `breaker` count by remote."""
    rate: Rate
    """How often this process may call each remote."""
    breaker: Breaker
    """When to stop calling a remote that cannot be reached."""
    outage: Literal["pause", "burn"]
    """What happens to the time budget while the breaker is open: it is paused (the default), or it runs on."""
    outage_budget: Duration
    """How long the budget may be paused over all outages of a run. Default: as long as the budget itself."""
    transient: tuple[type[BaseException], ...]
    fatal: tuple[type[BaseException], ...]
    classify: Classify
    """Your own rule, from an exception to "transient", "fatal", "unexpected" or None (the next rule decides)."""
    unexpected_errors: int
    """After how many unexpected errors in a row the run fails. Default: 5."""
    cancel_budget: Duration
    """How long the watch waits for a canceled operation to end. Default: 5 minutes."""
    cleanup_budget: Duration
    """How long the watch tries a cleanup. Default: 1 day."""
    cleanup_every: Backoff
    learn_by: str | Callable[[Any], Any]
    """The kind of an operation: a field of it, or a function of it. `Learned` keeps a history for each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPolicy:
    """The checked options."""

    name: str
    queue: str
    priority: int
    cadence: Cadence
    budget: Budget
    timeout_s: float
    version: int
    remote: str | Callable[[Any], str]
    rate: Rate | None
    breaker: Breaker | None
    outage_s: float
    """How long the budget may be paused over all outages of a run; 0: never."""
    rules: tuple[Classify, ...]
    unexpected_errors: int
    cancel_s: float
    cleanup: Budget
    cleanup_every: Backoff
    learn_by: str | Callable[[Any], Any] | None

    @property
    def step_s(self) -> float:
        """How long one step may take: it makes up to STEP_CALLS calls, each within the timeout."""
        return self.timeout_s * STEP_CALLS


def checked(name: str, every: Any, budget: Any, options: WatchOptions) -> WatchPolicy:
    """Return the policy; raise `BadInput` for an option that is not valid."""
    unknown = sorted(options.keys() - WatchOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(sorted(WatchOptions.__annotations__))
        raise BadInput(f"watch {shown(name)}: there is no option {unknown[0]!r}; there are every, budget, {known}")
    name = text("name", options.get("name", name), NAME_LIMIT, without=":")
    where = f"watch {name!r}"
    try:
        cadence = cadence_of(every)
    except BadInput as error:
        raise type(error)(f"{where}: {str(error).replace('initial=', 'every=', 1)}") from None
    if cadence is None:
        raise BadInput(f'{where}: every={shown(every)}: write Backoff("2s", factor=2, cap="30s"), or "30s"')
    if not isinstance(budget, Budget):
        raise BadInput(f'{where}: budget={shown(budget)}: a watch needs a budget: write Budget("29m", looks=120)')
    return WatchPolicy(
        name=name,
        queue=text(f"{where}: queue", options.get("queue", "default"), NAME_LIMIT),
        priority=_priority(where, options.get("priority", 0)),
        cadence=cadence,
        budget=budget,
        timeout_s=seconds(options.get("timeout", "1m"), name=f"{where}: timeout", positive=True),
        version=whole_number(options.get("version", 1), name=f"{where}: version", at_least=1, accepted="1 or more"),
        remote=_remote(where, options.get("remote", name)),
        rate=_instance(Rate, options.get("rate"), f"{where}: rate", 'Rate(10, per="1s")'),
        breaker=_instance(Breaker, options.get("breaker"), f"{where}: breaker", 'Breaker(10, "5m")'),
        outage_s=_outage_s(where, budget, options),
        rules=_rules(where, options),
        unexpected_errors=whole_number(
            options.get("unexpected_errors", 5), name=f"{where}: unexpected_errors", at_least=1, accepted="1 or more"
        ),
        cancel_s=seconds(options.get("cancel_budget", "5m"), name=f"{where}: cancel_budget", positive=True),
        cleanup=Budget(seconds(options.get("cleanup_budget", "1d"), name=f"{where}: cleanup_budget", positive=True)),
        cleanup_every=_instance(
            Backoff, options.get("cleanup_every"), f"{where}: cleanup_every", 'Backoff("1s", cap="1h")'
        )
        or DEFAULT_CLEANUP,
        learn_by=_learn_by(where, options),
    )


def text(name: str, value: object, limit: int, without: str | None = None) -> str:
    """Return the value if it is a text that may be part of a key; else raise `BadInput`."""
    flaw = flaw_of(value, limit)
    if flaw is None and isinstance(value, str) and without is not None and without in value:
        flaw = f"has {without!r} in it"
    if flaw is not None:
        but = "" if without is None else f" without {without!r}"
        raise BadInput(f"{name}={shown(value)} {flaw}: write a text of 1 to {limit} characters{but}")
    assert isinstance(value, str), "anything else has a flaw"
    return value


def _instance(kind: type, value: Any, name: str, like: str) -> Any:
    if value is None or isinstance(value, kind):
        return value
    raise BadInput(f"{name}={shown(value)}: write {like}")


def _outage_s(where: str, budget: Budget, options: WatchOptions) -> float:
    value = options.get("outage", "pause")
    if value not in {"pause", "burn"}:
        raise BadInput(f'{where}: outage={shown(value)}: write "pause" or "burn"')
    if value == "burn" and "outage_budget" in options:
        raise BadInput(f'{where}: outage="burn" lets the budget run: leave outage_budget out')
    limit_s = seconds(options.get("outage_budget", budget.time_s), name=f"{where}: outage_budget", positive=True)
    return limit_s if value == "pause" else 0.0


def _priority(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > PRIORITY_LIMIT:
        limit = f"{PRIORITY_LIMIT:,}"
        raise BadInput(f"{where}: priority={shown(value)}: write a whole number from -{limit} to {limit}")
    return value


def _remote(where: str, value: str | Callable[[Any], str]) -> str | Callable[[Any], str]:
    if isinstance(value, str) or callable(value):
        return value
    raise BadInput(f"{where}: remote={shown(value)}: write a name, or a function from the operation to a name")


def _learn_by(where: str, options: WatchOptions) -> str | Callable[[Any], Any] | None:
    value = options.get("learn_by")
    if inspect.iscoroutinefunction(value):
        raise BadInput(f"{where}: learn_by must be a plain function: write def")
    if value is None or isinstance(value, str) or callable(value):
        return value
    raise BadInput(f"{where}: learn_by={shown(value)}: write the name of a field, or a function of the operation")


def _rules(where: str, options: WatchOptions) -> tuple[Classify, ...]:
    rules: list[Classify] = [options["classify"]] if "classify" in options else []
    if rules and not callable(rules[0]):
        raise BadInput(f"{where}: classify={shown(rules[0])}: write a function from an exception to a word, or None")
    kinds = {name: _kinds(where, name, options.get(name, ())) for name in ("transient", "fatal")}
    if any(kinds.values()):
        rules.append(rule_of_types(**kinds))
    return tuple(rules)


def _kinds(where: str, name: str, value: Any) -> tuple[type[BaseException], ...]:
    kinds = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in kinds):
        raise BadInput(f"{where}: {name}={shown(value)}: write the types of exceptions, as (MyError, OtherError)")
    return kinds
