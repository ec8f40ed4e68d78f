"""The options of `app.watch`, checked, as the policy of a watch."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from everpoll.errors import BadInput
from everpoll.policy import Backoff, Breaker, Budget, Duration, Rate, flaw_of, seconds, shown, whole_number
from everpoll.watches.cadence import Cadence, cadence_of
from everpoll.watches.decisions.policy import DEFAULT_CLEANUP
from everpoll.watches.faults import Classify, one_of

NAME_LIMIT = 100
PRIORITY_LIMIT = 1_000_000_000
STEP_CALLS = 3
"""Adopt, cancel and look; or adopt, start and adopt. Most steps make one call."""
FALLBACK = Backoff("2s", factor=2, cap="30s", jitter=0.2)
"""The cadence, where one of the user's own has failed."""


class WatchOptions(TypedDict, total=False):
    """What `app.watch` takes beside `every` and `budget`."""

    name: str
    """Default: the function's own name."""
    queue: str
    priority: int
    timeout: Duration
    """How long one look, start, cancel or cleanup may take, and never longer than what is left of its budget; then the
    call has failed, and is tried again. Default: 1 minute."""
    version: int
    """Raise it when rows of the version before cannot be understood; see `@….migrate`."""
    remote: str | Callable[[Any], str]
    """The remote that is asked (a host, a tenant), or a function of the operation. `rate` and `breaker` count by it."""
    rate: Rate
    """How often this process may ask each remote."""
    breaker: Breaker
    """When to stop asking a remote that cannot be reached."""
    outage: Literal["pause", "burn"]
    """While the breaker is open: pause the time budget (the default), or burn it."""
    outage_budget: Duration
    """How long, over all outages of a run, its budget may be paused. Default: as long again as the budget."""
    transient: tuple[type[BaseException], ...]
    fatal: tuple[type[BaseException], ...]
    classify: Classify
    """Your own rule: an exception in, "transient", "fatal", "unexpected" or None (no opinion) out."""
    unexpected_errors: int
    """How often in a row a look may raise an unknown error before the run fails. Default: 5."""
    cancel_budget: Duration
    """How long a canceled operation is waited for. Default: 5 minutes."""
    cleanup_budget: Duration
    """How long a cleanup is tried. Default: 1 day."""
    cleanup_every: Backoff
    learn_by: str | Callable[[Any], Any]
    """What `Learned` keeps apart: a field of the operation, or a function of it; each value has its own history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPolicy:
    """The options, checked."""

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
    """How long the budget may be paused while the breaker is open, in all; 0: never."""
    rules: tuple[Classify, ...]
    unexpected_errors: int
    cancel_s: float
    cleanup: Budget
    cleanup_every: Backoff
    learn_by: str | Callable[[Any], Any] | None

    @property
    def step_s(self) -> float:
        """How long one step may take at most: it makes up to STEP_CALLS calls, each within the timeout."""
        return self.timeout_s * STEP_CALLS


def checked(name: str, every: Any, budget: Any, options: WatchOptions) -> WatchPolicy:
    """Return the policy; raise `BadInput` that says what to write."""
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
        raise BadInput(f'{where}: budget={shown(budget)}: no watch without a deadline; write Budget("29m", looks=120)')
    return WatchPolicy(
        name=name,
        queue=text(f"{where}: queue", options.get("queue", "default"), NAME_LIMIT),
        priority=_priority(where, options.get("priority", 0)),
        cadence=cadence,
        budget=budget,
        timeout_s=seconds(options.get("timeout", "1m"), name=f"{where}: timeout", positive=True),
        version=whole_number(options.get("version", 1), name=f"{where}: version", at_least=1, accepted="1 or more"),
        remote=_remote(where, options.get("remote", name)),
        rate=_a(Rate, options.get("rate"), f"{where}: rate", 'Rate(10, per="1s")'),
        breaker=_a(Breaker, options.get("breaker"), f"{where}: breaker", 'Breaker(10, "5m")'),
        outage_s=_outage_s(where, budget, options),
        rules=_rules(where, options),
        unexpected_errors=whole_number(
            options.get("unexpected_errors", 5), name=f"{where}: unexpected_errors", at_least=1, accepted="1 or more"
        ),
        cancel_s=seconds(options.get("cancel_budget", "5m"), name=f"{where}: cancel_budget", positive=True),
        cleanup=Budget(seconds(options.get("cleanup_budget", "1d"), name=f"{where}: cleanup_budget", positive=True)),
        cleanup_every=_a(Backoff, options.get("cleanup_every"), f"{where}: cleanup_every", 'Backoff("1s", cap="1h")')
        or DEFAULT_CLEANUP,
        learn_by=_learn_by(where, options),
    )


def text(name: str, value: object, limit: int, without: str | None = None) -> str:
    """Return a text that may be part of a key; refuse any other."""
    flaw = flaw_of(value, limit)
    if flaw is None and isinstance(value, str) and without is not None and without in value:
        flaw = f"has {without!r} in it"
    if flaw is not None:
        but = "" if without is None else f" without {without!r}"
        raise BadInput(f"{name}={shown(value)} {flaw}: write a text of 1 to {limit} characters{but}")
    assert isinstance(value, str), "anything else has a flaw"
    return value


def _a(kind: type, value: Any, name: str, like: str) -> Any:
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
        rules.append(one_of(**kinds))
    return tuple(rules)


def _kinds(where: str, name: str, value: Any) -> tuple[type[BaseException], ...]:
    kinds = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in kinds):
        raise BadInput(f"{where}: {name}={shown(value)}: write the types of exceptions, as (MyError, OtherError)")
    return kinds
