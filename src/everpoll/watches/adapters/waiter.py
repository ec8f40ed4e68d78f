"""Waiter models: lists of acceptors that judge a response as success, failure or retry.

AWS waiters, version 2 (`waiters-2.json` of botocore), by `matcher`:

    path, pathAll, pathAny   a JMESPath expression over the body; lists must be non-empty; never matches an error
    status                   the HTTP status
    error                    the error's code; `true` is any error, `false` is none

Smithy's `waitable` trait, by the key of `matcher`: `output` and `inputOutput` (with `stringEquals`, `booleanEquals`,
`allStringEquals`, `anyStringEquals`), `success` and `errorType`.

The first acceptor that matches decides. If none does, an error is failure and anything else is retry. JMESPath is the
`jmespath` package: the extra `aws`.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from everpoll.drivers.missing_packages import missing_package
from everpoll.engine.threads import DaemonThreads
from everpoll.errors import BadInput
from everpoll.policy import Budget
from everpoll.watches.adapters.client import Memory
from everpoll.watches.adapters.threads import in_thread
from everpoll.watches.limits import encoded
from everpoll.watches.verdicts import Done, Fail, Verdict, Wait

State = Literal["success", "failure", "retry"]
STATES = ("success", "failure", "retry")


class JudgedResponse(NamedTuple):
    """One response, as acceptors see it."""

    body: Any
    status: int | None
    error: str | None
    """The code of the error; None: there was none. An empty code is an error, too."""
    input: Any


Matches = Callable[[JudgedResponse], bool]


class Waiter:
    """A model, ready to judge: `Waiter({"acceptors": […], "delay": 15, "maxAttempts": 40})`."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        acceptors = model.get("acceptors")
        if not isinstance(acceptors, list | tuple):
            raise BadInput('a waiter model is {"acceptors": […], "delay": 15, "maxAttempts": 40}')
        self.delay_s = float(_number(model, "delay", _number(model, "minDelay", 2)))
        """The delay between two looks; the first one, if delays grow."""
        self.longest_delay_s = float(_number(model, "delay", _number(model, "maxDelay", 120)))
        """The longest delay of a Smithy waiter; those of AWS waiters do not grow."""
        self.max_attempts: int | None = int(_number(model, "maxAttempts", 0)) or None
        self.operation: str | None = model.get("operation")
        self._acceptors = [_acceptor(number, one) for number, one in enumerate(acceptors, 1)]

    @property
    def budget(self) -> Budget | None:
        """The budget that the model allows; None if it sets no limit."""
        if self.max_attempts is None:
            return None
        return Budget(max(self.delay_s, 0.001) * self.max_attempts, looks=self.max_attempts)

    def judge(self, *, body: Any = None, status: int | None = None, error: Any = None, input: Any = None) -> State:  # noqa: A002 - Smithy's own word
        """Return the state after one response. `error` is its code, or an error of botocore's; None: a success."""
        return self.explain(body=body, status=status, error=error, input=input)[0]

    def explain(
        self,
        *,
        body: Any = None,
        status: int | None = None,
        error: Any = None,
        input: Any = None,  # noqa: A002 - Smithy's own word
    ) -> tuple[State, str]:
        """Return the state after one response, and the rule that decided it."""
        seen = JudgedResponse(body, status, _code(error), input)
        for state, rule, matches in self._acceptors:
            if matches(seen):
                return state, rule
        if seen.error is not None:
            return "failure", f"error {seen.error or 'without a code'}, which no acceptor matches"
        return "retry", "no acceptor matches"


class WaiterOperation:
    """A waiter model and the call whose answers it judges: `WaiterOperation(model, client.describe_table)`.

    The handle holds the arguments of the call: `{"TableName": "orders"}`. A plain function runs in a thread.
    """

    def __init__(self, model: Waiter | Mapping[str, Any], call: Callable[..., Any]) -> None:
        self.waiter = model if isinstance(model, Waiter) else Waiter(model)
        self._call = call
        self._threads = DaemonThreads(name="everpoll-waiter")

    async def look(self, handle: Mapping[str, Any], memory: Memory | None = None) -> Verdict:
        """Call once and judge the answer.

        An error without an answer of the service, such as a broken network, is raised.
        """
        try:
            body, error = await self._called(handle), None
        except Exception as raised:
            if _code_in(getattr(raised, "response", None)) is None:
                raise
            body, error = raised.response, raised  # type: ignore[attr-defined]  # its code was read above
        metadata = body.get("ResponseMetadata") if isinstance(body, Mapping) else None
        status = metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None
        state, rule = self.waiter.explain(body=body, status=status, error=error, input=handle)
        if state == "success":
            return Done(_storable(_without_metadata(body)))
        if state == "failure":
            return Fail(f"the waiter failed: {rule}", evidence=_storable(_without_metadata(body)))
        # AWS waiters have one fixed delay. Delays of Smithy waiters grow, which is left to the watch's cadence.
        is_steady = self.waiter.longest_delay_s == self.waiter.delay_s > 0
        return Wait(self.waiter.delay_s if is_steady else None, note=rule)

    async def _called(self, handle: Mapping[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._call):
            return await self._call(**handle)
        value = await in_thread(self._threads, self._call, **handle)
        return await value if inspect.isawaitable(value) else value


def load(source: str | Path | Mapping[str, Any], name: str, *, operation: str | None = None) -> Waiter:
    """Load a waiter by its name from a `waiters-2.json` of botocore, or from a Smithy model (with its operation).

    `source` is the path of the file, or its content. "InstanceRunning" and "instance_running" are one name.
    """
    model = source if isinstance(source, Mapping) else json.loads(Path(source).read_text(encoding="utf-8"))
    if "shapes" in model:
        found = _in_smithy(model, operation)
    elif model.get("version") == 2:
        found = model.get("waiters", {})
    else:
        raise BadInput(f"version {model.get('version')!r} of waiter models is not supported: only version 2 is")
    wanted = name.replace("_", "").lower()
    for known, one in found.items():
        if known.lower() == wanted:
            return Waiter(one)
    raise BadInput(f"no waiter has the name {name!r}; known waiters: {', '.join(sorted(found)) or 'none'}")


def _in_smithy(model: Mapping[str, Any], operation: str | None) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for shape_id, shape in model["shapes"].items():
        if operation is None or operation in (shape_id, shape_id.partition("#")[2]):
            found |= shape.get("traits", {}).get("smithy.waiters#waitable", {})
    return found


def _acceptor(number: int, acceptor: Any) -> tuple[State, str, Matches]:
    where = f"acceptor {number}"
    if not isinstance(acceptor, Mapping) or acceptor.get("state") not in STATES:
        raise BadInput(f"{where}: write a state, one of {', '.join(STATES)}")
    matcher = acceptor.get("matcher")
    if isinstance(matcher, Mapping):
        rule, matches = _smithy(where, matcher)
    else:
        rule, matches = _version_2(where, matcher, acceptor)
    return acceptor["state"], f"{where}: {rule}", matches


def _version_2(where: str, matcher: Any, acceptor: Mapping[str, Any]) -> tuple[str, Matches]:
    if "expected" not in acceptor:
        raise BadInput(f"{where}: matcher {matcher!r} needs an 'expected' value")
    expected = acceptor["expected"]
    if matcher == "status":
        return f"HTTP status is {expected}", lambda seen: seen.status is not None and seen.status == expected
    if matcher == "error":
        return _error_rule(expected)
    if matcher not in ("path", "pathAll", "pathAny"):
        raise BadInput(f"{where}: matcher {matcher!r} is not known: write path, pathAll, pathAny, status or error")
    search = _compiled(where, acceptor.get("argument"))
    test = {"path": _equal, "pathAll": _all, "pathAny": _any}[matcher]
    rule = f"{matcher} {acceptor['argument']} is {expected!r}"
    return rule, lambda seen: seen.error is None and test(search(seen.body), expected)


def _error_rule(expected: Any) -> tuple[str, Matches]:
    if expected is True:
        return "there is an error", lambda seen: seen.error is not None
    if expected is False:
        return "there is no error", lambda seen: seen.error is None
    return f"the error is {expected}", lambda seen: (seen.error or "") == expected


def _smithy(where: str, matcher: Mapping[str, Any]) -> tuple[str, Matches]:
    if len(matcher) != 1:
        raise BadInput(f"{where}: a matcher has one of output, inputOutput, success and errorType")
    kind, expected = next(iter(matcher.items()))
    if kind == "success":
        return _error_rule(expected is not True)
    if kind == "errorType":
        # A shape id may be absolute (ns#Name); the service sends its name.
        name = str(expected).partition("#")[2] or str(expected)
        return f"the error is {name}", lambda seen: seen.error == name
    if kind not in ("output", "inputOutput"):
        raise BadInput(f"{where}: matcher {kind!r} is not known: write output, inputOutput, success or errorType")
    search, test = _compiled(where, expected.get("path")), _comparator(where, expected.get("comparator"))
    wanted = expected.get("expected")
    rule = f"{kind} {expected.get('path')} {expected.get('comparator')} {wanted!r}"

    def matches(seen: JudgedResponse) -> bool:
        subject = seen.body if kind == "output" else {"input": seen.input, "output": seen.body}
        return seen.error is None and test(search(subject), wanted)

    return rule, matches


def _comparator(where: str, name: Any) -> Callable[[Any, Any], bool]:
    known: dict[Any, Callable[[Any, Any], bool]] = {
        "stringEquals": _is_text,
        "booleanEquals": lambda found, wanted: found is (wanted == "true"),
        "allStringEquals": lambda found, wanted: _all(found, wanted) and isinstance(wanted, str),
        "anyStringEquals": lambda found, wanted: _any(found, wanted) and isinstance(wanted, str),
    }
    if name not in known:
        raise BadInput(f"{where}: comparator {name!r} is not known: write one of {', '.join(known)}")
    return known[name]


# `==`, as in botocore: a model that expects `true` accepts a 1.
def _equal(found: Any, expected: Any) -> bool:
    return bool(found == expected)


def _is_text(found: Any, expected: Any) -> bool:
    return isinstance(found, str) and found == expected


def _all(found: Any, expected: Any) -> bool:
    return isinstance(found, list) and bool(found) and all(one == expected for one in found)


def _any(found: Any, expected: Any) -> bool:
    return isinstance(found, list) and any(one == expected for one in found)


def _compiled(where: str, expression: Any) -> Callable[[Any], Any]:
    if not isinstance(expression, str) or not expression:
        raise BadInput(f"{where}: it needs a JMESPath expression")
    try:
        jmespath = import_module("jmespath")
    except ImportError:
        raise missing_package(f"{where}: a path", "jmespath", "aws") from None
    try:
        search = jmespath.compile(expression).search
    except jmespath.exceptions.JMESPathError as error:
        raise BadInput(f"{where}: {expression!r} is not a valid JMESPath expression: {error}") from None

    def found(body: Any) -> Any:
        try:
            return search(body)
        except jmespath.exceptions.JMESPathError:
            # A function met a type that it does not accept (`length` of null): the body does not match.
            return None

    return found


def _code(error: Any) -> str | None:
    """Return the code of an error: a text is one; else that of a botocore response, or the name of the exception."""
    if error is None or isinstance(error, str):
        return error
    found = _code_in(error if isinstance(error, Mapping) else getattr(error, "response", None))
    if found is not None:
        return found
    if isinstance(error, BaseException):
        return type(error).__name__
    raise BadInput(f"error={error!r}: write the code of the error, an exception, or None")


def _code_in(response: Any) -> str | None:
    if not isinstance(response, Mapping):
        return None
    error = response.get("Error", response)
    code = error.get("Code") if isinstance(error, Mapping) else None
    return None if code is None else str(code)


def _without_metadata(body: Any) -> Any:
    """Return the body without the metadata of the request."""
    return {name: one for name, one in body.items() if name != "ResponseMetadata"} if isinstance(body, dict) else body


def _storable(said: Any) -> Any:
    """Return the answer if a row can hold it, else a note that says why not."""
    try:
        encoded(said, "the answer")
    except BadInput as error:
        return {"note": f"{error}; make the call again to read it"}
    return said


def _number(model: Mapping[str, Any], name: str, default: float) -> float:
    value = model.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise BadInput(f"{name}={value!r}: a waiter model needs a number here, 0 or more")
    return value
