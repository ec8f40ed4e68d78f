"""What becomes of a message that a channel does not deliver: retries, merging, giving up, and never a second copy."""

import logging

import pytest

from everpoll.monitors.alerts import mailbox
from everpoll.monitors.alerts.channel import Undelivered
from everpoll.monitors.alerts.channels import Channels
from everpoll.monitors.alerts.mailbox import KIND, Mail, queue_of
from everpoll.monitors.alerts.outbox import Outbox
from everpoll.monitors.alerts.undelivered import give_up_unserved
from everpoll.monitors.checks.assignment import QUEUE
from everpoll.monitors.report import Status
from everpoll.stores.contract import TaskInfo, WorkerCard
from everpoll.stores.operations import Revision

from .notices import notice
from .stage import Stage
from .test_one_alert_over_any_crash import names_in_events

REFUSED = Undelivered("it refused the connection", is_certain=True)
SILENT = Undelivered("it did not answer within 10s", is_certain=False)


async def mail_of(stage: Stage, channel: str = "ops") -> tuple[TaskInfo, Mail]:
    row = await stage.store.find(KIND, channel)
    assert row is not None
    return row, mailbox.read(mailbox.write(row.memory))


def test_a_message_that_certainly_did_not_arrive_is_tried_again_with_growing_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        inbox.failures = [REFUSED] * 5
        await stage.process()
        await Outbox(stage.store, stage.channels).hand_over([notice(at=stage.wall())])
        await stage.clock.advance(15)
        row, mail = await mail_of(stage)
        assert (mail.failures, mail.error) == (2, "it refused the connection")
        await stage.clock.advance(600)
        assert (inbox.tries, inbox.headlines) == (6, ["alert billing"])
        assert 250 < inbox.arrived_at[0] < 400
        row, mail = await mail_of(stage)
        assert (mail.failures, mail.error, mail.retry_at) == (0, None, None)
        assert row.args["notices"] == [], "what is done is taken out"

    with caplog.at_level(logging.WARNING):
        stage.play(scene)
    tried = [one.message for one in caplog.records]
    assert len(tried) == 5
    assert tried[0].startswith("channel 'ops': not delivered: it refused the connection; trying again in ")


def test_what_comes_meanwhile_is_part_of_the_next_try() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        inbox.failures = [REFUSED] * 3
        await stage.process()
        outbox = Outbox(stage.store, stage.channels)
        for name in ("billing", "shop", "search"):
            await outbox.hand_over([notice(name, at=stage.wall())])
            await stage.clock.advance(10)
        await stage.clock.advance(300)
        [message] = inbox.messages
        assert len(message.notices) == 3

    stage.play(scene)


def test_a_receiver_that_wants_to_rest_is_left_alone() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        inbox.failures = [Undelivered("HTTP 429", is_certain=True, retry_after_s=900.0)]
        await stage.process()
        await Outbox(stage.store, stage.channels).hand_over([notice(at=stage.wall())])
        await stage.clock.advance(890)
        assert inbox.tries == 1
        await stage.clock.advance(120)
        assert inbox.headlines == ["alert billing"]

    stage.play(scene)


def test_a_message_that_may_have_arrived_is_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        inbox.failures = [SILENT]
        await stage.process()
        outbox = Outbox(stage.store, stage.channels)
        await outbox.hand_over([notice(at=stage.wall())])
        await stage.clock.advance(600)
        await outbox.hand_over([notice("shop", at=stage.wall())])
        await stage.clock.advance(60)
        assert inbox.headlines == ["alert billing", "alert shop"]
        assert await names_in_events(stage, "message:unclear") == [notice().id]
        assert await names_in_events(stage, "message:delivered") == [notice("shop").id]

    stage.play(scene)
    assert any("may not have been delivered: it did not answer within 10s" in one.message for one in caplog.records)


def test_a_receiver_that_drops_repeats_gets_the_same_letter_again() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s", drops_repeats=True)

    async def scene() -> None:
        # The third try certainly did not arrive, and the first two may have: the letter stays the same.
        inbox.failures = [SILENT, SILENT, REFUSED]
        await stage.process()
        outbox = Outbox(stage.store, stage.channels)
        await outbox.hand_over([notice(at=stage.wall())])
        await stage.clock.advance(5)
        await outbox.hand_over([notice("shop", at=stage.wall())])
        await stage.clock.advance(600)
        assert [len(letter.notices) for letter in inbox.letters] == [1, 1, 1, 1]
        assert inbox.letters[0] == inbox.letters[1] == inbox.letters[2]
        assert inbox.headlines == ["alert billing", "alert shop"]

    stage.play(scene)


def test_after_a_day_a_notice_is_given_up_with_a_log_line_and_an_event(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        inbox.failures = [REFUSED] * 1_000
        await stage.process()
        await Outbox(stage.store, stage.channels).hand_over([notice(at=stage.wall())])
        await stage.clock.advance(86_000)
        assert await names_in_events(stage, "message:given_up") == []
        await stage.clock.advance(2_000)
        assert await names_in_events(stage, "message:given_up") == [notice().id]
        tries = inbox.tries
        assert 90 < tries < 130
        inbox.failures = []
        await stage.clock.advance(7_200)
        assert inbox.tries == tries
        row, _ = await mail_of(stage)
        assert row.args["notices"] == []

    stage.play(scene)
    assert any("1 notices are given up" in one.message for one in caplog.records)


def test_a_channel_that_raises_anything_ends_no_mailbox() -> None:
    stage = Stage()

    async def scene() -> None:
        class Broken:
            drops_repeats = False

            async def deliver(self, *_: object) -> None:
                raise ZeroDivisionError

        stage.channels.add("ops", Broken(), "1s")
        await stage.process()
        await Outbox(stage.store, stage.channels).hand_over([notice(at=stage.wall())])
        await stage.clock.advance(60)
        inbox = stage.inbox("ops", group="1s")
        await Outbox(stage.store, stage.channels).hand_over([notice("shop", at=stage.wall())])
        await stage.clock.advance(60)
        assert inbox.headlines == ["alert shop"]

    stage.play(scene)


def test_a_channel_that_hangs_costs_its_time_and_is_not_repeated() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        inbox.takes_s = 1_000.0
        await stage.process()
        await Outbox(stage.store, stage.channels).hand_over([notice(at=stage.wall())])
        await stage.clock.advance(600)
        assert (inbox.tries, await names_in_events(stage, "message:unclear")) == (1, [notice().id])

    stage.play(scene)


def test_a_process_that_lacks_the_channel_leaves_the_mailbox_to_one_that_has_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        lacking = Channels()
        await stage.process(lacking)
        await Outbox(stage.store, lacking).hand_over([notice(at=stage.wall())])
        await Outbox(stage.store, lacking).hand_over([notice(at=stage.wall())])
        await stage.clock.advance(120)
        row, _ = await mail_of(stage, "ops")
        assert (inbox.letters, row.worker) == ([], None), "it does not even lease it"
        await stage.process()
        await stage.clock.advance(2)
        assert inbox.headlines == ["alert billing"]

    stage.play(scene)
    assert sum("is not registered in this process" in one.message for one in caplog.records) == 2, "once a process"


def test_a_channel_that_no_process_has_is_given_up_after_a_day() -> None:
    stage = Stage()

    async def scene() -> None:
        await stage.process()
        await Outbox(stage.store, stage.channels).hand_over([notice(at=stage.wall(), channel="typo")])
        for passes_s, left in ((80_000, 1), (20_000, 0)):
            await stage.clock.advance(passes_s)
            await give_up_unserved(stage.store, stage.wall())
            row, _ = await mail_of(stage, "typo")
            assert len(row.args["notices"]) == left

    stage.play(scene)


def test_a_notice_that_is_handed_over_again_and_again_is_sent_once() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        first = notice(at=stage.wall())
        for hours in range(60):
            if hours == 1:
                await stage.process()
            await Outbox(stage.store, stage.channels).hand_over([first, first])
            await stage.clock.advance(3_600)
        assert inbox.headlines == ["alert billing"]

    stage.play(scene)


def test_a_mailbox_that_was_canceled_or_ended_goes_on() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        outbox = Outbox(stage.store, stage.channels)
        await outbox.hand_over([notice(at=stage.wall())])
        row, _ = await mail_of(stage)
        await stage.store.cancel(row.id, '{"what":"cancel"}')
        await stage.process()
        await stage.clock.advance(10)
        assert inbox.headlines == ["alert billing"]

    stage.play(scene)


async def lose_workers(stage: Stage, how_many: int = 3) -> None:
    """Workers lease everything that is due, and die."""
    for incarnation in range(1_000, 1_000 + how_many):
        card = WorkerCard(incarnation=incarnation, label="dies", host="", pid=0, queues=(), slots=9, version="")
        await stage.store.sign_on(card, 30.0)
        await stage.store.lease(incarnation, {QUEUE: 100, queue_of("ops"): 100}, 100)
        await stage.store.sign_off(incarnation)
        stage.store.rescue(incarnation, (), ())


def test_a_mailbox_that_was_taken_for_poison_goes_on_with_what_it_knows() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        outbox = Outbox(stage.store, stage.channels)
        await outbox.hand_over([notice(at=stage.wall())])
        await lose_workers(stage)
        assert (await mail_of(stage))[0].state == "failed"
        await outbox.hand_over([notice("shop", at=stage.wall())])
        await stage.process()
        await stage.clock.advance(60)
        assert sorted(inbox.headlines) == ["alert billing", "alert shop"]

    stage.play(scene)


def test_an_incident_that_was_taken_for_poison_still_recovers() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service()
        process = await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(30)
        [incident] = await stage.open_ones()
        process.store.freeze()
        await stage.store.revise([Revision("incident", incident.id, hurry=True)])
        await lose_workers(stage)
        row = await stage.store.find("incident", incident.id)
        assert row is not None
        assert row.state == "failed"
        await stage.service()
        await stage.process()
        stage.turn(Status.UP)
        await stage.clock.advance(200)
        assert inbox.headlines == ["alert billing", "recovered billing"]

    stage.play(scene)


def test_an_outage_of_the_store_loses_and_repeats_nothing() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service()
        process = await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(60)
        for _ in range(10):
            process.store.is_away = True
            await stage.clock.advance(7)
            process.store.is_away = False
            await stage.clock.advance(3)
        stage.turn(Status.UP)
        process.store.is_away = True
        await stage.clock.advance(13)
        process.store.is_away = False
        await stage.clock.advance(120)
        assert inbox.headlines == ["alert billing", "recovered billing"]

    stage.play(scene)
