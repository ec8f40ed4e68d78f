"""What the site builder does beside building: it hears warnings, and shows blocks that the tests do not run."""

import logging
import re
from typing import Any

# Python-Markdown knows one word after the fence: with a second one the block would be shown as a line of running text.
_NO_RUN = re.compile(r"^(\s*```python) no-run[ ]*$", re.MULTILINE)


def on_startup(**_: Any) -> None:
    """Let `--strict` count warnings under `--quiet` too: that option silences them before they are counted."""
    builder = logging.getLogger("mkdocs")
    builder.setLevel(min(builder.level, logging.WARNING))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show a block that the tests do not run like any other."""
    return _NO_RUN.sub(r"\1", markdown)
