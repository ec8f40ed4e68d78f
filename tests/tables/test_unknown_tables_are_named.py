"""A name that no adopted table has raises `TableNotFound`, which lists the tables that there are."""

from pathlib import Path

import pytest

from everpoll import Everpoll, NotFound, Table, TableNotFound


def test_the_error_names_the_table_and_lists_those_that_are_adopted(tmp_path: Path) -> None:
    app = Everpoll(f"sqlite:///{tmp_path}/app.db")
    with pytest.raises(TableNotFound, match=r"^no table is called 'ordres'; adopted: none$"):
        app.tables["ordres"]
    for name in ("orders", "audits"):
        app.table(Table(name), url=f"sqlite:///{tmp_path}/shop.db")
    with pytest.raises(NotFound, match=r"^no table is called 'ordres'; adopted: audits, orders$"):
        app.tables["ordres"]
    assert app.tables["orders"].name == "orders"
    assert app.tables.get("ordres") is None
