"""The end of a group's member costs a few statements more for its whole batch, however large the group is."""

from pathlib import Path

from everpoll.drivers.sqlite.address import read_address
from everpoll.drivers.sqlite.connection import Connection, connect
from everpoll.stores.contract import Ended, WorkerCard
from everpoll.stores.sqlite import enqueueing, flows, leasing, rescue, settling
from everpoll.stores.sqlite.schema import prepare
from stores.flow_tasks import group, task

BATCH = 100


def statements_of_a_settlement(con: Connection, members: int | None) -> int:
    """How many statements settle a batch of plain tasks, or of members of a group of that size."""
    worker, queue = members or 1, f"of {members}"
    card = WorkerCard(incarnation=worker, label="w", host="h", pid=1, queues=(queue,), slots=BATCH, version="0")
    rescue.sign_on(con, 1, card, 60.0)
    if members is None:
        enqueueing.enqueue(con, 1, enqueueing.call_of([task("m", queue=queue)] * BATCH))
    else:
        flow = group(task("report", queue="reports"), [task("m", queue=queue)] * members)
        assert all(one.is_new for one in flows.enqueue(con, 1, flows.call_of(flow)))
    looked = leasing.lease(con, 2, leasing.Poll(worker, {queue: BATCH}, BATCH))
    batch = settling.Batch(worker, [Ended(one.id, one.sequence, "done", "1") for one in looked.leased.leases])
    texts: list[str] = []
    con.set_trace_callback(texts.append)
    assert settling.settle(con, 3, batch) == set()
    con.set_trace_callback(None)
    return len(texts)


def test_the_size_of_a_group_does_not_matter(path: Path) -> None:
    address = read_address(f"sqlite:///{path}")
    prepare(address, 1.0, migrate=True)
    con = connect(address, patience_s=1.0)
    con.begin(1.0)
    plain, small, large = (statements_of_a_settlement(con, members) for members in (None, 200, 10_000))
    assert small == large
    assert (plain, large - plain) == (2, 4)
    con.execute("rollback")
    con.close()
