"""The pages of the documentation and the Python blocks in them."""

import re
import sys
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
        """Under which name it is to be saved: its first line says `# shop.py`, or `# shop/jobs.py`."""
        found = re.fullmatch(r"# (\w+(?:/\w+)*\.py)", self.code.split("\n", 1)[0].strip())
        return found[1] if found else None

    @property
    def module(self) -> str | None:
        """As what later blocks import it, if it is in a folder: then it is saved, and not run by itself."""
        return self.file.removesuffix(".py").replace("/", ".") if self.file and "/" in self.file else None

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


def run(page: Path, folder: Path) -> None:
    """Run the blocks of a page in order, in one namespace; `folder` is where its files go, and is on the path."""
    # Not "__main__": an example may end with the lines that a program starts with.
    namespace: dict[str, object] = {"__name__": "example"}
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.code, encoding="utf-8")
        if block.is_run and block.module is None:
            block.execute(namespace)
    unused = [block.module for block in blocks(page) if block.module and block.module not in sys.modules]
    assert not unused, f"{name_of(page)}: no block imports {unused}"


def files_below(folder: Path) -> list[Path]:
    """Every file below a folder, without hidden folders: `bench/.peers` has packages that others wrote."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


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
