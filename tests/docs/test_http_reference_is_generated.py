"""docs/reference/http.md is what the route table says."""

import runpy

from doc_pages import ROOT


def test_the_page_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "docs/http_reference.py"))
    written = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")
    assert written == made["text"](), "run: python docs/http_reference.py"
