"""An attribute that jobs of other queues have raises an error that names ours."""

import inspect

import pytest

from everpoll import BadInput, Everpoll
from everpoll.testing import drain

app = Everpoll("memory://")


@app.job()
async def send(to: int) -> None: ...


@pytest.mark.parametrize("habit", ["delay", "apply_async", "defer", "kiq", "enqueue_async", "perform_async"])
def test_enqueue_by_another_name_names_enqueue(habit: str) -> None:
    with pytest.raises(AttributeError, match=rf"job 'send' has no '{habit}': write await send\.enqueue\(…\)"):
        getattr(send, habit)


@pytest.mark.parametrize(("habit", "here"), [("s", r"send\.call\(…\)"), ("configure", r"send\.options\(")])
def test_other_habits_are_named_too(habit: str, here: str) -> None:
    with pytest.raises(AttributeError, match=here):
        getattr(send, habit)


def test_any_other_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^job 'send' has no 'nmae'$"):
        send.nmae  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(send, "delay")
    assert inspect.unwrap(send) is not send


async def test_drain_takes_the_app() -> None:
    with pytest.raises(BadInput, match=r"drain takes the app"):
        await drain(send)  # type: ignore[arg-type]
