"""The doctor judges workers, leases, queues, names, services and the outbox from what every store tells it."""

import time
from typing import Any

from everpoll.doctor import Check, diagnose
from everpoll.monitors.alerting import Notice
from everpoll.monitors.alerts import mailbox
from everpoll.monitors.alerts.mailbox import MAILBOX, Mail
from everpoll.monitors.checks.assignment import CHECK
from everpoll.monitors.checks.assignment import KIND as CHECK_KIND
from everpoll.monitors.checks.assignment import QUEUE as CHECK_QUEUE
from everpoll.stores.contract import Limit
from stores.stage import LEASE_S, Stage, json

LATE_S = 120.0


async def checks(stage: Stage, *registered: str) -> dict[str, Check]:
    found = await diagnose(stage.store.examiner(), registered=registered)
    assert found.ok == all(one.level == "ok" for one in found.checks)
    for one in found.checks:
        assert one.says
        assert (one.level == "ok") == (one.remedy == ""), one
    return {one.name: one for one in found.checks}


async def levels(stage: Stage) -> dict[str, str]:
    """By name. Other tests leave dead rows in the database that they share: what those mean is tested elsewhere."""
    return {name: one.level for name, one in (await checks(stage)).items() if name != "dead rows"}


async def test_an_idle_store_is_well(stage: Stage) -> None:
    """Nothing waits and no worker runs: no check complains, and those that are promised are there."""
    found = await levels(stage)
    assert set(found.values()) == {"ok"}
    assert {"schema", "indexes", "clock", "leases", "transactions", "workers", "queues"} <= found.keys()


async def test_a_working_fleet_is_well(stage: Stage) -> None:
    """A live worker with one running task and one that is due a moment ago is no finding."""
    worker = await stage.worker("till-1", names=("job",))
    await stage.running(worker)
    await stage.put()
    found = await checks(stage)
    assert set((await levels(stage)).values()) == {"ok"}
    assert "till-1" in found["workers"].says


async def test_tasks_without_any_worker_are_a_problem(stage: Stage) -> None:
    """Due tasks and no live worker: workers and queues say so, with the number and the command."""
    await stage.put(3, queue="mail", name="send")
    await stage.pass_time(LATE_S)
    found = await checks(stage)
    assert found["workers"].level == "problem"
    assert "3 tasks wait" in found["workers"].says
    assert found["queues"].level == "problem"
    assert "'mail'" in found["queues"].says
    assert "send" in found["queues"].says
    assert "everpoll run" in found["queues"].remedy


async def test_a_queue_that_no_live_worker_serves_is_a_problem(stage: Stage) -> None:
    """A worker of another queue does not help."""
    await stage.put(queue="mail")
    await stage.pass_time(LATE_S)
    await stage.worker(queues=("default",))
    found = await levels(stage)
    assert (found["workers"], found["queues"]) == ("ok", "problem")


async def test_tasks_with_a_limit_without_any_worker_are_a_problem(stage: Stage) -> None:
    """They wait in a line of their own."""
    await stage.put(2, queue="mail", name="send", limit=Limit("tenant", running=1))
    await stage.pass_time(LATE_S)
    # A look moves what has fallen due into that line.
    await stage.take(await stage.worker(), 1, "default", "mail")
    await stage.pass_time(LATE_S)
    found = await checks(stage)
    assert found["workers"].level == "problem"
    assert "1 task waits" in found["workers"].says
    assert found["queues"].level == "problem"
    assert "'mail'" in found["queues"].says


async def test_running_tasks_with_a_limit_past_their_deadline_are_a_warning(stage: Stage) -> None:
    worker = await stage.worker(names=("job",))
    lease = await stage.running(worker, timeout_s=1.0, limit=Limit("tenant", running=1))
    await stage.pass_time(600.0)
    await stage.beat(worker, [lease.id])
    assert "1 task past the deadline, by up to" in (await checks(stage))["leases"].says


async def test_a_version_that_no_live_worker_registers_is_a_problem(stage: Stage) -> None:
    """A worker of the release before registers the name, and cannot run the task."""
    await stage.put(name="buy", version=2)
    await stage.put(name="buy")
    await stage.pass_time(LATE_S)
    old = await stage.worker(names=("buy",))
    found = (await checks(stage))["names"]
    assert found.level == "problem"
    assert "registers 'buy' with version 2" in found.says
    assert "1 due task" in found.says
    assert "restart the workers" in (await checks(stage, "buy", "buy@2"))["names"].remedy
    assert "restart the workers" not in (await checks(stage, "buy"))["names"].remedy
    await stage.store.sign_off(old)
    await stage.worker(names=("buy", "buy@2"))
    assert (await levels(stage))["names"] == "ok"


async def test_a_paused_queue_with_tasks_is_a_warning(stage: Stage) -> None:
    """It names the actor, the reason and the command that resumes; it is not told as unserved."""
    await stage.put(2, queue="mail")
    await stage.store.pause("mail", "the server moves", "anna")
    await stage.pass_time(LATE_S)
    await stage.worker(queues=("default",))
    found = await checks(stage)
    assert found["paused"].level == "warning"
    assert "anna" in found["paused"].says
    assert "the server moves" in found["paused"].says
    assert "everpoll queues resume mail" in found["paused"].remedy
    assert found["queues"].level == "ok"


async def test_a_worker_that_does_not_beat_is_told_with_its_leases(stage: Stage) -> None:
    """Silent for longer than its lease: a warning about it, a problem about what it holds and nobody can take back."""
    worker = await stage.worker("till-1")
    await stage.running(worker)
    await stage.pass_time(LEASE_S * 2)
    found = await checks(stage)
    assert found["workers"].level == "warning"
    assert "till-1" in found["workers"].says
    assert found["leases"].level == "problem"
    assert "1 task leased by worker till-1" in found["leases"].says


async def test_leases_that_a_live_worker_should_have_taken_back_are_a_problem(stage: Stage) -> None:
    """Within minutes another worker takes leases of a silent one back; later something is wrong with it."""
    worker = await stage.worker("till-1")
    await stage.running(worker)
    await stage.pass_time(LEASE_S * 2)
    rescuer = await stage.worker("till-2")
    assert (await levels(stage))["leases"] == "warning"
    await stage.pass_time(600.0)
    await stage.beat(rescuer)
    assert (await levels(stage))["leases"] == "problem"


async def test_tasks_past_their_deadline_are_a_warning(stage: Stage) -> None:
    """Its worker is alive, and its handler goes on behind the timeout."""
    worker = await stage.worker(names=("job",))
    lease = await stage.running(worker, timeout_s=1.0)
    await stage.pass_time(600.0)
    await stage.beat(worker, [lease.id])
    found = await checks(stage)
    assert found["leases"].level == "warning"
    assert "1 task past the deadline, by up to" in found["leases"].says


async def test_a_name_that_no_live_worker_registers_is_a_problem(stage: Stage) -> None:
    """A worker serves the queue, and none of its names is that of the due task."""
    await stage.worker(names=("other",))
    await stage.put(2, name="lost")
    assert (await levels(stage))["names"] == "warning"
    await stage.pass_time(LATE_S)
    worker = await stage.worker(names=("other",))
    found = await checks(stage)
    assert found["names"].level == "problem"
    assert "'lost'" in found["names"].says
    assert "2 due tasks" in found["names"].says
    assert "restart the workers" in (await checks(stage, "lost"))["names"].remedy
    await stage.store.sign_off(worker)
    await stage.worker(names=("lost",))
    assert (await levels(stage))["names"] == "ok"


async def test_a_worker_that_tells_no_names_is_trusted(stage: Stage) -> None:
    """Workers of earlier releases did not say what they register."""
    await stage.worker(names=())
    await stage.put(name="lost")
    assert (await levels(stage))["names"] == "ok"


async def test_services_that_are_not_looked_at_are_a_problem(stage: Stage) -> None:
    """The look is late by minutes; the service is named."""
    await stage.put(name=CHECK, kind=CHECK_KIND, queue=CHECK_QUEUE, key="billing", indexed=True, args="{}")
    await stage.pass_time(LATE_S)
    found = await checks(stage)
    assert found["services"].level == "problem"
    assert "billing" in found["services"].says


async def test_alerts_that_are_not_delivered_are_a_problem(stage: Stage) -> None:
    """A mailbox whose tries fail, and one that no process empties; a fresh notice is no finding."""
    await put_mailbox(stage, "fresh", age_s=5.0)
    assert (await levels(stage))["outbox"] == "ok"
    await put_mailbox(stage, "broken", age_s=5.0, memory=Mail(failures=3, error="550 mailbox unavailable"))
    await put_mailbox(stage, "forgotten", age_s=3600.0)
    found = (await checks(stage))["outbox"]
    assert found.level == "problem"
    assert "550 mailbox unavailable" in found.says
    assert "'forgotten'" in found.says
    assert "'fresh'" not in found.says


async def put_mailbox(stage: Stage, channel: str, age_s: float, memory: Mail | None = None) -> None:
    at = time.time() - age_s
    notice = Notice(id=channel, incident="1", channel=channel, kind="alert", at=at, service="billing", since=at)
    args: Any = mailbox.append(None, [notice]).args
    text = mailbox.write(memory or Mail()).decode()
    await stage.put(name=MAILBOX, kind=mailbox.KIND, key=channel, indexed=True, args=json(args), memory=text)


async def test_a_diagnosis_changes_nothing(stage: Stage) -> None:
    """What was due, leased and paused before is so after it."""
    worker = await stage.worker()
    lease = await stage.running(worker)
    await stage.put(2, queue="mail")
    await stage.store.pause("mail", "", "")
    before = [await stage.store.queues(), await stage.store.info([lease.id]), (await stage.store.events(None, 1)).after]
    await checks(stage)
    after = [await stage.store.queues(), await stage.store.info([lease.id]), (await stage.store.events(None, 1)).after]
    assert before == after
