"""The pages of the documentation and the Python blocks in them."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(
    r"^(?P<indent>[ ]*)(?P<fence>`{3,}|~{3,})[ ]*(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced Python block: where its code begins, the words after the fence, and the code."""

    page: Path
    line: int
    info: tuple[str, ...]
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        """Under which name it is to be saved: its first line says `# shop.py`."""
        found = re.fullmatch(r"# (\w+\.py)", self.code.split("\n", 1)[0].strip())
        return found[1] if found else None

    @property
    def is_run(self) -> bool:
        return "no-run" not in self.info

    @property
    def reason(self) -> str:
        """Why it is not run: the text of the comment in its first line."""
        first = self.code.split("\n", 1)[0].strip()
        return first.removeprefix("#").strip() if first.startswith("#") else ""

    def execute(self, namespace: dict[str, object]) -> None:
        """Run it; tracebacks point to the line in the page."""
        source = "\n" * (self.line - 1) + self.code
        exec(compile(source, str(self.page), "exec"), namespace)  # noqa: S102 - running the examples is the purpose


def pages() -> list[Path]:
    """Everything that is read by people: the files at the top, then the documentation."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The Python blocks of a page, in order."""
    return list(_blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        info = tuple(match["info"].split())
        if info and info[0] in {"python", "py", "python3"}:
            line = text.count("\n", 0, match.start("body")) + 1
            yield Block(page, line, info, textwrap.dedent(match["body"]))


def name_of(page: Path) -> str:
    """How a page is called in the list of tests."""
    return page.relative_to(ROOT).as_posix()
