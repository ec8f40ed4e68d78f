"""Source and documentation name the actor: words that hide it, and names that say nothing, are found and listed.

Requirement ids are covered by `test_every_requirement_has_its_tests.py`.
"""

import io
import re
import tokenize
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks, files_below, name_of

PLACES = ("src/everpoll", "docs", "examples", "dashboard/src", "tests", "bench")
KINDS = {".py", ".sql", ".md", ".ts", ".svelte"}
# Built from `dashboard/src` and not in git.
BUILT = ROOT / "src/everpoll/server/dashboard"
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
# It quotes the words.
HERE = Path(__file__).resolve()

# What stands between two words of a sentence that goes on in the next line of a comment.
_GAP = r"(?:\s|\n[ ]*(?:#|//|--|\*)[ ]?)+"
_ASKING = r"\b(?:ask|know|tell|say|see|decide|of|by|in|at|to|from|for)s?\s"

WORDS: dict[str, re.Pattern[str]] = {
    "names no actor": re.compile(r"\b(?:somebody|nobody|whoever|everybody|anybody|whom)\b", re.IGNORECASE),
    "who is/has/was": re.compile(rf"\bwho{_GAP}(?:is|has|was)\b", re.IGNORECASE),
    # "There is no" and "is no longer" are ordinary English.
    "is no": re.compile(rf"(?P<plain>\bthere{_GAP})?\b(?:is|are|was){_GAP}no\b(?!{_GAP}longer\b)", re.IGNORECASE),
    "what was told": re.compile(rf"\bwhat{_GAP}was{_GAP}told\b", re.IGNORECASE),
    "the one that": re.compile(rf"\bthe{_GAP}one{_GAP}that\b", re.IGNORECASE),
    # "A task whose worker died" is clear; "Whose turn comes late" is a riddle.
    "whose, of nothing": re.compile(rf"\bWhose\b|{_ASKING}whose\b"),
}
# An address of a page is a name that others link to: it is not a sentence.
_LINK_TARGET = re.compile(r"\]\([^)\s]+\)")
NAMES = {"told", "hands", "desk", "ear", "shelves", "strangers"}

# Where a word may stand, and why. An entry that finds nothing any more fails, too.
ALLOWED_WORDS: dict[tuple[str, str], str] = {}
ALLOWED_NAMES: dict[str, str] = {
    "has_told": "a column of the stored schema: renaming it needs a migration, and old workers would fail beside it",
}


def files() -> list[Path]:
    found = [path for place in PLACES for path in files_below(ROOT / place) if path.suffix in KINDS]
    return sorted(
        [path for path in found if path != HERE and BUILT not in path.parents] + [ROOT / name for name in TOP]
    )


def words_in(text: str) -> list[tuple[int, str, str]]:
    """Line, rule and matched text of each banned word."""
    text = _LINK_TARGET.sub("]", text)
    found = []
    for rule, pattern in WORDS.items():
        for match in pattern.finditer(text):
            if match.groupdict().get("plain"):
                continue
            words = " ".join(re.sub(r"[^\w\s]", " ", match[0]).split())
            line = text.count("\n", 0, match.end()) + 1
            found.append((line, rule, words))
    return sorted(found)


def names_in(path: Path) -> list[tuple[int, str]]:
    """Line and name of each identifier that is, or is made with, a banned one."""
    match path.suffix:
        case ".py":
            tokens = _python_names(path.read_text(encoding="utf-8"), 1)
        case ".md":
            tokens = [one for block in blocks(path) for one in _python_names(block.code, block.line)]
        case _:
            tokens = _other_names(path.read_text(encoding="utf-8"))
    return [
        (line, name)
        for line, name in tokens
        # The name of a test is a sentence: "…_is_told_how_to_get_one" says what it means.
        if _parts(name) & NAMES and not name.startswith("test_") and name not in ALLOWED_NAMES
    ]


def _python_names(code: str, first_line: int) -> list[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [(token.start[0] + first_line - 1, token.string) for token in tokens if token.type == tokenize.NAME]


def _other_names(text: str) -> list[tuple[int, str]]:
    """Of SQL, TypeScript and Svelte: every word outside comments and strings."""
    ignored = re.compile(r"/\*.*?\*/|<!--.*?-->|--[^\n]*|(?<!:)//[^\n]*|\"[^\"\n]*\"|'[^'\n]*'", re.DOTALL)
    code = ignored.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return [(code.count("\n", 0, match.start()) + 1, match[0]) for match in re.finditer(r"\w+", code)]


def _parts(name: str) -> set[str]:
    """`has_told` and `hasTold` are made of "has" and "told"."""
    return set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


@pytest.mark.parametrize("place", [*PLACES, "."])
def test_sentences_name_the_actor(place: str) -> None:
    found = [
        f"{name_of(path)}:{line}: {words} ({rule})"
        for path in _below(place)
        for line, rule, words in words_in(path.read_text(encoding="utf-8"))
        if (name_of(path), words.lower()) not in ALLOWED_WORDS
    ]
    if found:
        pytest.fail(f"{len(found)} to reword:\n" + "\n".join(found), pytrace=False)


@pytest.mark.parametrize("place", [*PLACES, "."])
def test_names_say_what_a_thing_is_for(place: str) -> None:
    found = [f"{name_of(path)}:{line}: {name}" for path in _below(place) for line, name in names_in(path)]
    if found:
        pytest.fail(f"{len(found)} to rename:\n" + "\n".join(found), pytrace=False)


def _below(place: str) -> list[Path]:
    folder = ROOT / place
    return [path for path in files() if (path.parent == ROOT if place == "." else folder in path.parents)]


def test_each_exception_is_still_needed() -> None:
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in files()}
    unused = [
        f"{file}: {words}"
        for file, words in ALLOWED_WORDS
        if words not in {found.lower() for _, _, found in words_in(texts.get(file, ""))}
    ]
    unused += [name for name in ALLOWED_NAMES if not any(re.search(rf"\b{name}\b", text) for text in texts.values())]
    assert unused == []


@pytest.mark.parametrize(
    "text",
    [
        "Nobody waits.",
        "the worker who has it",
        "a dead listener is no listener",
        "a value\n    # that is\n    # no number",
        "by the one that holds it",
        "It answers what was told.",
        "Whose turn comes late has none.",
        '"""Whose lease ended."""',
        "It asks whose turn it is.",
    ],
)
def test_a_banned_word_is_found(text: str) -> None:
    assert len(words_in(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "There is no worker.",
        "Then there\n    is no worker.",
        "It is no longer leased.",
        "A task whose worker died is run again.",
        "a row, whose key is taken",
        "a call\nwhose time is over",
        "select 1 where due_at is not null",
        "the two are told apart",
        "[Pause](how-to/pause-hidden-loops.md)",
    ],
)
def test_ordinary_english_is_not_found(text: str) -> None:
    assert words_in(text) == []


def test_a_banned_name_is_found_in_each_language(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('told = "hands"  # desk\nself._has_told()\n', encoding="utf-8")
    (tmp_path / "a.sql").write_text("-- told\nselect told.id from told\n", encoding="utf-8")
    (tmp_path / "a.ts").write_text("// told\nconst hasTold = 'told'\n", encoding="utf-8")
    (tmp_path / "a.md").write_text("# told\n\n```python\ntold = 1\n```\n", encoding="utf-8")
    assert names_in(tmp_path / "a.py") == [(1, "told"), (2, "_has_told")]
    assert names_in(tmp_path / "a.sql") == [(2, "told"), (2, "told")]
    assert names_in(tmp_path / "a.ts") == [(2, "hasTold")]
    assert names_in(tmp_path / "a.md") == [(4, "told")]
