"""The example's page: what it quotes is what stands in the code, and the decision tree stays readable."""

import re
import textwrap
from pathlib import Path

import examples.shell_query

FOLDER = Path(examples.shell_query.__file__).parent
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_decision_tree_is_quoted_as_it_is_and_has_at_most_40_lines() -> None:
    code = (FOLDER / "app.py").read_text(encoding="utf-8")
    assert textwrap.indent(BLOCKS[0], "    ") in code
    assert len(BLOCKS[0].splitlines()) <= 40


def test_the_other_block_runs() -> None:
    exec(BLOCKS[1], {})  # noqa: S102 - our own page


def test_it_is_one_page_and_its_links_lead_somewhere() -> None:
    assert len(PAGE.splitlines()) <= 110
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert links
    assert all((FOLDER / link).exists() for link in links)
