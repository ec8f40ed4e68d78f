"""Every case of `conformance/health` is read to the report that it states; `conformance/README.md` is their format.

The cases are written from the rules and from what the frameworks write, not recorded from the code.
"""

import pytest

from everpoll.monitors import FORMATS, read

from .health_cases import CASES, Case

RECOGNISED = [(file, case) for file, case in CASES if case.format == "auto" and case.expect.format != "plain"]


@pytest.mark.parametrize(("file", "case"), CASES, ids=[f"{file}: {case.name}" for file, case in CASES])
def test_the_report_is_as_the_case_says(file: str, case: Case) -> None:
    assert read(case.data, case.content_type, case.status, case.format, case.mapping) == case.expect


def test_there_are_cases_for_every_format() -> None:
    assert len(CASES) >= 150
    assert {case.expect.format for _, case in CASES} == set(FORMATS) - {"auto"}


def test_names_of_cases_are_unique_in_their_file() -> None:
    names = [(file, case.name) for file, case in CASES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("file", "case"), RECOGNISED, ids=[f"{file}: {case.name}" for file, case in RECOGNISED])
def test_what_is_recognised_is_read_as_if_it_had_been_named(file: str, case: Case) -> None:
    assert read(case.data, case.content_type, case.status, case.expect.format, case.mapping) == case.expect


@pytest.mark.parametrize("other", sorted(set(FORMATS) - {"auto", "mapping"}))
def test_a_format_that_the_user_named_is_kept_whatever_the_body_is(other: str) -> None:
    """Naming a format turns recognition off: an answer of another format is read by the named one, or is unknown."""
    for file, case in CASES:
        if case.mapping is None:
            report = read(case.data, case.content_type, case.status, other)
            assert report.format == other, f"{file}: {case.name}"
