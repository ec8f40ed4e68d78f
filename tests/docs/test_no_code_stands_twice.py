"""No two places in the source share more than ten lines: what is written twice is changed once and forgotten once.

Lines are compared without regard to spaces. Blank lines do not count, nor do imports and `__all__`: lists of names.
"""

import ast
from collections import defaultdict
from pathlib import Path

import everpoll

MOST_LINES = 10


def numbered_lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a file that count, with their numbers."""
    text = path.read_text(encoding="utf-8")
    names = lists_of_names(text) if path.suffix == ".py" else set()
    numbered = enumerate(map(" ".join, map(str.split, text.splitlines())), 1)
    return [(number, line) for number, line in numbered if line and number not in names]


def lists_of_names(text: str) -> set[int]:
    """The numbers of the lines of imports and `__all__`."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def shared_runs(files: dict[str, list[tuple[int, str]]], length: int) -> list[str]:
    """The places, as texts, where so many lines in a row are equal to those of an earlier place."""
    firsts: dict[tuple[str, ...], tuple[str, int]] = {}
    shared: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, numbered in files.items():
        for start in range(len(numbered) - length + 1):
            run = tuple(line for _, line in numbered[start : start + length])
            place = (name, numbered[start][0])
            first = firsts.setdefault(run, place)
            if first != place:
                shared[first[0], name].append(f"{first[0]}:{first[1]} and {name}:{place[1]}")
    return [places[0] for places in shared.values()]


def test_no_two_places_share_more_than_ten_lines() -> None:
    assert everpoll.__file__ is not None
    source = Path(everpoll.__file__).parent
    paths = sorted(one for one in source.rglob("*") if one.suffix in {".py", ".sql"})
    assert len(paths) > 500, "the source was not found"
    files = {str(one.relative_to(source)): numbered_lines(one) for one in paths}
    assert shared_runs(files, MOST_LINES + 1) == []


def test_the_comparison_finds_what_stands_twice() -> None:
    lines = [(number, f"line {number}") for number in range(1, 12)]
    again = [(number + 40, line) for number, line in lines]
    assert shared_runs({"one.py": lines, "two.py": again}, 11) == ["one.py:1 and two.py:41"]
    assert shared_runs({"one.py": [*lines, (30, "between"), *again]}, 11) == ["one.py:1 and one.py:41"]
    assert shared_runs({"one.py": lines, "two.py": again[1:]}, 11) == []


def test_lists_of_names_do_not_count() -> None:
    text = 'from a import (\n    b,\n    c,\n)\n\n__all__ = [\n    "b",\n]\nx = 1\n'
    assert lists_of_names(text) == {1, 2, 3, 4, 6, 7, 8}
