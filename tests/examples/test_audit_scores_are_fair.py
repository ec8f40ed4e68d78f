"""The audit's score: pure functions from facts to points, each finding in one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.website_audit.page import Page, read_page
from examples.website_audit.score import CHECKS, Answer, Check, scored

URL = "https://example.com/bakery"
PERFECT = Page(
    title="The bakery at the corner",
    description="Bread, cakes and coffee from six in the morning, every day but Monday.",
    lang="en",
    has_viewport=True,
    headings=(1, 2, 3, 2),
    images=2,
    internal_links=2,
    external_links=1,
)


def answer(status: int = 200, size_bytes: int = 5_000, took_s: float = 0.1, redirects: int = 0) -> Answer:
    return Answer(url=URL, status=status, size_bytes=size_bytes, took_s=took_s, redirects=redirects)


def changed(**facts: object) -> Page:
    return Page(**{**{name: getattr(PERFECT, name) for name in PERFECT.__struct_fields__}, **facts})


def check(name: str, page: Page = PERFECT, said: Answer | None = None) -> Check:
    return next(one for one in scored(said or answer(), page).checks if one.name == name)


def test_nothing_to_complain_about_is_100_points_and_no_findings() -> None:
    report = scored(answer(), PERFECT)
    assert report.score == 100
    assert report.findings == []


def test_the_weights_add_up_to_100() -> None:
    assert sum(check(answer(), PERFECT).of for check in CHECKS) == 100


@pytest.mark.parametrize(
    ("name", "facts", "points", "finding"),
    [
        ("title", {"title": None}, 0, "no title"),
        ("title", {"title": ""}, 0, "no title"),
        ("title", {"title": "Bikes"}, 6, "title of 5 characters; 10 to 60 are best"),
        ("title", {"title": "x" * 10}, 10, ""),
        ("title", {"title": "x" * 60}, 10, ""),
        ("title", {"title": "x" * 61}, 6, "title of 61 characters; 10 to 60 are best"),
        ("headings", {"headings": ()}, 0, "no headings"),
        ("headings", {"headings": (2, 3)}, 4, "no h1"),
        ("headings", {"headings": (1, 2, 1)}, 4, "2 h1"),
        ("headings", {"headings": (2, 1)}, 6, "begins with h2, before the h1"),
        ("headings", {"headings": (1, 3)}, 7, "h3 follows h1"),
        ("headings", {"headings": (1, 2, 3, 4, 2)}, 10, ""),
        ("links", {"internal_links": 0, "external_links": 0}, 3, "no links"),
        ("links", {"broken_anchors": ("#a",)}, 6, "leads nowhere: #a"),
        ("links", {"broken_anchors": ("#a", "#b", "#c", "#d", "#e")}, 0, "leads nowhere: #a, #b, #c"),
        ("alt texts", {"images": 0, "images_without_alt": 0}, 10, ""),
        ("alt texts", {"images": 2, "images_without_alt": 1}, 5, "1 of 2 images without alt"),
        ("alt texts", {"images": 3, "images_without_alt": 3}, 0, "3 of 3 images without alt"),
        ("description", {"description": None}, 0, "no meta description"),
        ("description", {"description": "short"}, 5, "description of 5 characters; 50 to 160 are best"),
        ("description", {"description": "x" * 161}, 5, "description of 161 characters; 50 to 160 are best"),
        ("language", {"lang": None}, 0, "no lang"),
        ("viewport", {"has_viewport": False}, 0, "no viewport"),
    ],
)
def test_what_a_page_lacks_costs_points_and_is_said(
    name: str, facts: dict[str, object], points: int, finding: str
) -> None:
    found = check(name, changed(**facts))
    assert (found.points, found.finding) == (points, finding)


@pytest.mark.parametrize(
    ("name", "said", "points", "finding"),
    [
        ("timing", answer(took_s=0.3), 15, ""),
        ("timing", answer(took_s=1.65), 8, "took 1.6 s"),
        ("timing", answer(took_s=3.0), 0, "took 3.0 s"),
        ("timing", answer(took_s=9.0), 0, "took 9.0 s"),
        ("size", answer(size_bytes=100_000), 10, ""),
        ("size", answer(size_bytes=550_000), 5, "550 kB of HTML"),
        ("size", answer(size_bytes=1_500_000), 0, "1,500 kB of HTML"),
        ("status", answer(redirects=1), 15, ""),
        ("status", answer(redirects=3), 10, "3 redirects on the way"),
    ],
)
def test_what_the_server_does_costs_points_and_is_said(name: str, said: Answer, points: int, finding: str) -> None:
    found = check(name, said=said)
    assert (found.points, found.finding) == (points, finding)


def test_a_page_that_was_cut_counts_as_too_big() -> None:
    cut = Answer(url=URL, status=200, size_bytes=50_000, is_cut=True, took_s=0.1)
    assert check("size", said=cut) == Check("size", 0, 10, "more than 50 kB of HTML")


@pytest.mark.parametrize("status", [404, 410, 403, 304])
def test_an_answer_that_is_no_success_scores_nothing(status: int) -> None:
    report = scored(answer(status=status), PERFECT)
    assert report.score == 0
    assert report.findings == [f"answers {status}"]


def test_findings_come_with_the_costliest_first() -> None:
    report = scored(answer(took_s=5.0), changed(lang=None, title="Bikes"))
    assert report.findings == ["took 5.0 s", "no lang", "title of 5 characters; 10 to 60 are best"]


@given(
    st.builds(answer, st.integers(100, 499), st.integers(0, 3_000_000), st.floats(0, 60), st.integers(0, 5)),
    st.builds(
        Page,
        title=st.none() | st.text(max_size=80),
        description=st.none() | st.text(max_size=200),
        lang=st.none() | st.just("en"),
        has_viewport=st.booleans(),
        headings=st.lists(st.integers(1, 6), max_size=8).map(tuple),
        images=st.just(5),
        images_without_alt=st.integers(0, 5),
        internal_links=st.integers(0, 3),
        external_links=st.integers(0, 3),
        broken_anchors=st.lists(st.text(min_size=1, max_size=40), max_size=8).map(tuple),
    ),
)
def test_any_score_is_the_sum_of_its_checks_and_every_lost_point_is_explained(said: Answer, page: Page) -> None:
    report = scored(said, page)
    assert 0 <= report.score <= 100
    assert report.score == sum(one.points for one in report.checks)
    assert sum(one.of for one in report.checks) == 100
    assert all(0 <= one.points <= one.of for one in report.checks)
    assert all(bool(one.finding) == (one.points < one.of) for one in report.checks)


def test_a_whole_page_is_read() -> None:
    page = read_page(
        """<!doctype html><html lang=" de "><head><title> The
        bakery </title><meta name="Description" content="Bread &amp; cakes"><meta name="viewport" content="width=1">
        </head><body><h1>A</h1><h2 id="bread">B</h2><img src=a alt=""><img src=b>
        <a href="#bread">x</a><a href="/other#nowhere">y</a><a href="https://example.org/">z</a></body>""",
        URL,
    )
    assert page == Page(
        title="The bakery",
        description="Bread & cakes",
        lang="de",
        has_viewport=True,
        headings=(1, 2),
        images=2,
        images_without_alt=1,
        internal_links=2,
        external_links=1,
    )


@pytest.mark.parametrize(
    ("link", "broken"),
    [
        ('<a href="#there">', ()),
        ('<a href="#named">', ()),
        ('<a href="#caf%C3%A9">', ()),
        ('<a href="#">', ()),
        ('<a href="#TOP">', ()),
        ('<a href="#nowhere">', ("#nowhere",)),
        ('<a href="#nowhere"><a href="#nowhere">', ("#nowhere",)),
        ('<a href="/bakery#nowhere">', ("#nowhere",)),
        ('<a href="https://EXAMPLE.com/bakery#nowhere">', ("#nowhere",)),
        ('<a href="/bakery?page=2#nowhere">', ()),
        ('<a href="https://example.org/bakery#nowhere">', ()),
    ],
)
def test_an_anchor_is_broken_where_the_page_itself_has_no_such_place(link: str, broken: tuple[str, ...]) -> None:
    html = f'<p id="there"></p><a name="named"></a><p id="café"></p>{link}</a>'
    assert read_page(html, URL).broken_anchors == broken


@pytest.mark.parametrize("href", ["mailto:a@example.com", "tel:+49", "javascript:void(0)", "http://[broken", "data:,x"])
def test_what_leads_to_no_page_is_no_link(href: str) -> None:
    page = read_page(f'<a href="{href}">x</a>', URL)
    assert (page.internal_links, page.external_links) == (0, 0)


def test_the_title_of_a_drawing_is_not_the_title_of_the_page() -> None:
    assert read_page("<svg><title>Logo</title></svg>", URL).title is None
    assert read_page("<svg/><title>Bakery</title>", URL).title == "Bakery"


@given(st.text(alphabet="<>/!-\"'= abhimgtle1#&;\n", max_size=200))
def test_broken_markup_is_read_without_complaint(html: str) -> None:
    read_page(html, URL)
