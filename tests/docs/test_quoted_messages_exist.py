"""What the pages quote of our own messages is what the code says: the verdicts of `everpoll why`."""

import inspect
import re

from doc_pages import ROOT

from everpoll.engine import why
from everpoll.watches import why as why_run


def test_every_quoted_verdict_is_one_that_the_code_gives() -> None:
    page = (ROOT / "docs/how-to/find-out-why.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| `([A-Z][^`]+)` \|", page, re.MULTILINE)
    assert len(quoted) > 8
    source = inspect.getsource(why) + inspect.getsource(why_run)
    # Up to the first figure, name or omission, which differ from case to case.
    beginnings = [re.split(r"[\d'…]| for \b", verdict)[0].rstrip() for verdict in quoted]
    assert [beginning for beginning in beginnings if beginning not in source] == []


def test_every_verdict_of_the_code_is_explained() -> None:
    """By its first words: enough to find it on the page."""
    page = (ROOT / "docs/how-to/find-out-why.md").read_text(encoding="utf-8")
    source = inspect.getsource(why) + inspect.getsource(why_run)
    verdicts = re.findall(r'Why\(\s*f?"((?:[\w\'-]+ ){2}[\w\'-]+)', source)
    assert len(verdicts) > 8
    assert [words for words in verdicts if words not in page] == []
