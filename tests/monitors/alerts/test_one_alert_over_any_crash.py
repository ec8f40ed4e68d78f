"""Whichever write a process dies before or after: one incident, one alert, one recovery; never a second message."""

import asyncio
import itertools
import random
from collections import Counter
from typing import Any

import pytest

from everpoll.monitors.alerting import Alert
from everpoll.monitors.alerts.mailbox import KIND as MAILBOX_KIND
from everpoll.monitors.report import Status

from .stage import Inbox, Moment, Process, Stage

EXPECTED = ["alert billing", "recovered billing"]


async def names_in_events(stage: Stage, kind: str) -> list[str]:
    """The notices that events of this kind are about."""
    notices: list[str] = []
    for channel in stage.inboxes:
        row = await stage.store.find(MAILBOX_KIND, channel)
        events = [] if row is None else await stage.store.task_events(row.id)
        notices += [one for event in events if event.body["kind"] == kind for one in event.body["notices"]]
    return notices


async def outage(stage: Stage, dies_at: tuple[int, Moment] | None, *, ends_with_it: bool = False) -> Process:
    """A service fails for five minutes and recovers; a second process takes over from the first one.

    With `ends_with_it`, the service recovers in the moment in which the first process dies.
    """
    stage.inbox("ops", group="5s")
    stage.inbox("hook", group="5s", drops_repeats=True)
    await stage.service(every="30s", alert=Alert(after=2, to=["ops", "hook"]))
    stage.turn(Status.DOWN)
    first = await stage.process(dies_at=dies_at)

    async def take_over() -> None:
        await first.store.died.wait()
        if ends_with_it:
            stage.turn(Status.UP)
        await stage.process()

    taking_over = asyncio.ensure_future(take_over())
    await stage.clock.advance(300)
    stage.turn(Status.UP)
    await stage.clock.advance(300)
    taking_over.cancel()
    return first


def write_count() -> int:
    stage = Stage()
    writes: list[str] = []

    async def scene() -> None:
        writes.extend((await outage(stage, None)).store.writes)
        assert stage.inboxes["ops"].headlines == stage.inboxes["hook"].headlines == EXPECTED

    stage.play(scene)
    return len(writes)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_dies_at_any_write_is_followed_by_one_that_sends_the_rest(moment: Moment) -> None:
    for number in range(write_count()):
        stage = Stage()

        async def scene(stage: Stage = stage, number: int = number) -> None:
            await outage(stage, (number, moment))
            [past] = await stage.incidents.list(open=None)
            assert (past.is_open, past.closed_why) == (False, "recovered")
            assert stage.inboxes["hook"].headlines == EXPECTED, "a receiver that drops repeats has everything once"
            unclear = await names_in_events(stage, "message:unclear")
            assert await names_in_events(stage, "message:given_up") == []
            messages = Counter(one.id for letter in stage.inboxes["ops"].letters for one in letter.notices)
            for notice_id in (f"{past.id}/alert/ops", f"{past.id}/recovered/ops"):
                # Dead between the note of a try and its end, nothing is known: it is not sent again.
                assert messages[notice_id] == 1 or (messages[notice_id] == 0 and notice_id in unclear), number

        stage.play(scene)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_where_an_alert_was_sent_the_recovery_is_too_wherever_a_process_died(moment: Moment) -> None:
    for number in range(write_count()):
        stage = Stage()

        async def scene(stage: Stage = stage, number: int = number) -> None:
            await outage(stage, (number, moment), ends_with_it=True)
            assert stage.inboxes["hook"].headlines in ([], EXPECTED), number
            assert await stage.open_ones() == ()

        stage.play(scene)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_was_only_stopped_for_minutes_changes_nothing_when_it_goes_on(moment: Moment) -> None:
    for number in range(0, write_count(), 2):
        stage = Stage()

        async def scene(stage: Stage = stage, number: int = number) -> None:
            first = await outage(stage, (number, moment))
            [past] = await stage.incidents.list(open=None)
            messages = {name: inbox.headlines for name, inbox in stage.inboxes.items()}
            first.store.dies_at = None
            first.store.thaw()
            await stage.clock.advance(600)
            assert await stage.incidents.list(open=None) == (past,)
            for name, inbox in stage.inboxes.items():
                late = Counter(inbox.headlines) - Counter(messages[name])
                # What it was about to send when it was stopped, and no other process has sent.
                assert all(count == 1 for count in Counter(inbox.headlines).values()), (number, name, late)

        stage.play(scene)


@pytest.mark.parametrize("seed", range(8))
def test_random_kills_during_flapping(seed: int) -> None:
    rng = random.Random(seed)
    stage = Stage()

    async def scene() -> None:
        inboxes = [stage.inbox("ops", group="5s"), stage.inbox("hook", group="5s", drops_repeats=True)]
        names = ["billing", "shop", "search"]
        for name in names:
            await stage.service(name, every="10s", alert=Alert(after=2, to=["ops", "hook"]))
        alive = [await stage.process() for _ in range(2)]
        for _ in range(25):
            stage.turn(rng.choice([Status.UP, Status.DOWN]), rng.choice(names))
            await stage.clock.advance(rng.uniform(1, 40))
            killed = alive.pop(rng.randrange(2))
            killed.store.freeze()
            alive.append(await stage.process())
            if rng.random() < 0.3:
                # A zombie: it goes on once its tasks belong to others.
                await stage.clock.advance(60)
                killed.store.thaw()
        stage.turn(Status.UP, *names)
        await stage.clock.advance(600)
        await check(stage, inboxes)

    stage.play(scene)


async def check(stage: Stage, inboxes: list[Inbox]) -> None:
    assert await stage.open_ones() == ()
    past = await stage.incidents.list(open=False)
    unclear = await names_in_events(stage, "message:unclear")
    for inbox, channel in zip(inboxes, stage.inboxes, strict=True):
        letters: Any = {one.id: one for one in inbox.letters}.values() if inbox.drops_repeats else inbox.letters
        messages = Counter(one.id for letter in letters for one in letter.notices)
        assert set(messages.values()) <= {1}
        for incident in past:
            sent = [f"{incident.id}/{kind}/{channel}" for kind in ("alert", "recovered")]
            if incident.alerted:
                assert all(messages[one] == 1 or one in unclear for one in sent)
            else:
                assert all(messages[one] == 0 for one in sent)
    assert any(inbox.letters for inbox in inboxes)
    # One incident at a time for each service.
    for name in {one.service for one in past}:
        spans = sorted((one.opened_at, one.closed_at or 0.0) for one in past if one.service == name)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
