"""Any number of rows is written, in their order, by few statements with few texts."""

import sqlite3
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.drivers.sqlite.bulk import SIZES, write_rows
from everpoll.drivers.sqlite.connection import Connection


class Counted(Connection):
    """A connection that keeps the texts of its statements."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.texts: list[str] = []

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        self.texts.append(sql)
        return super().execute(sql, parameters)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 1_500))
def test_every_row_once_and_in_order(count: int) -> None:
    con = sqlite3.connect(":memory:", factory=Counted)
    con.execute("create table t (place integer primary key autoincrement, a integer, b text)")
    con.texts.clear()
    rows = [(number, f"text {number}") for number in range(count)]
    write_rows(con, "insert into t (a, b) values {rows}", rows)
    texts = list(con.texts)
    assert con.execute("select a, b from t order by place").fetchall() == rows
    assert len(texts) <= count // SIZES[0] + len(SIZES) - 1
    assert len(set(texts)) <= len(SIZES)
    con.close()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 1_500))
def test_rows_of_nulls_save_statements_and_change_nothing(count: int) -> None:
    con = sqlite3.connect(":memory:", factory=Counted)
    con.execute("create table t (a integer primary key, b integer)")
    write_rows(con, "insert into t (a, b) values {rows}", [(number, 0) for number in range(count)])
    con.texts.clear()
    change = "update t set b = v.column2 from (values {rows}) v where t.a = v.column1"
    write_rows(con, change, [(number, number + 1) for number in range(count)], fills=True)
    assert len(con.texts) == -(-count // SIZES[0])
    assert con.execute("select a, b from t order by a").fetchall() == [(number, number + 1) for number in range(count)]
    con.close()


def test_the_largest_rows_of_the_store_fit_into_one_statement() -> None:
    con = sqlite3.connect(":memory:", factory=Connection)
    assert con.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) >= SIZES[0] * 40
    con.close()
