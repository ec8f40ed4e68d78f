"""What some tasks say about their keys costs the others nothing: these take the statements that they always took."""

from typing import Any

import pytest

from everpoll.stores.contract import NewTask, Unique
from everpoll.stores.postgres import enqueueing

PLAIN, KEYED = NewTask(name="job"), NewTask(name="job", key="k")
BRIEF = NewTask(name="job", key="b", waits_briefly=True)


class Sent:
    """Stands for a lane and its connection: notes each statement, and answers as Postgres would."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    async def call(self, use: Any) -> Any:
        return await use(self)

    async def row(self, sql: str, *_: Any) -> Any:
        self.statements.append(sql)
        return [1]

    async def fetchrow(self, sql: str, *args: Any) -> Any:
        self.statements.append(sql)
        count = max(len(one) for one in args if isinstance(one, list | tuple))
        return [[1] * count, [True] * count]


@pytest.mark.parametrize(
    ("tasks", "statement"),
    [
        ([PLAIN], enqueueing.ONE[0]),
        ([PLAIN] * 3, enqueueing.ALIKE),
        ([PLAIN, NewTask(name="other")], enqueueing.MANY),
        ([KEYED], enqueueing.KEYED[False]),
        ([PLAIN, KEYED], enqueueing.KEYED[False]),
        ([BRIEF], enqueueing.KEYED[True]),
        ([KEYED, BRIEF], enqueueing.KEYED[True]),
        ([NewTask(name="job", key="k", unique=Unique("replace"))], enqueueing.SPECIAL[False]),
        ([BRIEF, NewTask(name="job", key="m", unique=Unique("replace"))], enqueueing.SPECIAL[True]),
        ([NewTask(name="job", key="k", unique=Unique("reject", together=True)), PLAIN], enqueueing.TOGETHER[False]),
    ],
)
async def test_each_kind_of_task_takes_one_statement_of_its_own(tasks: list[NewTask], statement: str) -> None:
    sent: Any = Sent()
    assert len(await enqueueing.enqueue(sent, tasks, notify=False)) == len(tasks)
    assert sent.statements == [statement]
