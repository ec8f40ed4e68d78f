"""How good a page is: ten checks, 100 points in all. Pure: facts in, a report out.

Promises: the points of the checks add up to the score; a check that does not get all its points says in one sentence
what was found, and the sentence never holds more than a few words of the page itself.
"""

from collections.abc import Callable
from itertools import pairwise

from msgspec import Struct

from examples.website_audit.page import Page

FAST_S, SLOW_S = 0.3, 3.0
SMALL_BYTES, BIG_BYTES = 100_000, 1_000_000


class Answer(Struct, frozen=True, kw_only=True):
    """What the server said, without the page."""

    url: str
    """Where the page was in the end, after redirects."""
    status: int
    size_bytes: int
    is_cut: bool = False
    """There was more than the cap; `size_bytes` is what was read."""
    took_s: float
    redirects: int = 0


class Check(Struct, frozen=True):
    """One check: so many points out of so many."""

    name: str
    points: int
    of: int
    finding: str = ""


class Report(Struct, frozen=True, kw_only=True):
    """What is stored with the audit."""

    score: int
    checks: tuple[Check, ...]
    answer: Answer
    page: Page

    @property
    def findings(self) -> list[str]:
        """What was found, the costliest first."""
        lost = [one for one in self.checks if one.finding]
        return [one.finding for one in sorted(lost, key=lambda one: one.points - one.of)]


def scored(answer: Answer, page: Page) -> Report:
    """The report. An answer that is not a success (404) has no page to look at: it scores nothing."""
    if not 200 <= answer.status < 300:
        nothing = Check("status", 0, 100, f"answers {answer.status}")
        return Report(score=0, checks=(nothing,), answer=answer, page=page)
    checks = tuple(check(answer, page) for check in CHECKS)
    return Report(score=sum(one.points for one in checks), checks=checks, answer=answer, page=page)


def status(answer: Answer, page: Page) -> Check:
    """Points for a success, fewer after a chain of redirects."""
    if answer.redirects > 1:
        return Check("status", 10, 15, f"{answer.redirects} redirects on the way")
    return Check("status", 15, 15)


def timing(answer: Answer, page: Page) -> Check:
    """All points up to 0.3 s, none from 3 s on, evenly in between."""
    points = _between(answer.took_s, FAST_S, SLOW_S, 15)
    return Check("timing", points, 15, "" if points == 15 else f"took {answer.took_s:.1f} s")


def size(answer: Answer, page: Page) -> Check:
    """All points up to 100 kB of HTML, none from 1 MB on."""
    points = 0 if answer.is_cut else _between(answer.size_bytes, SMALL_BYTES, BIG_BYTES, 10)
    at_least = "more than " if answer.is_cut else ""
    return Check("size", points, 10, "" if points == 10 else f"{at_least}{answer.size_bytes / 1000:,.0f} kB of HTML")


def title(answer: Answer, page: Page) -> Check:
    """10 to 60 characters are shown whole in search results."""
    if not page.title:
        return Check("title", 0, 10, "no title")
    if not 10 <= len(page.title) <= 60:
        return Check("title", 6, 10, f"title of {len(page.title)} characters; 10 to 60 are best")
    return Check("title", 10, 10)


def headings(answer: Answer, page: Page) -> Check:
    """One h1, first, and no level left out on the way down."""
    levels = page.headings
    if not levels:
        return Check("headings", 0, 10, "no headings")
    if levels.count(1) != 1:
        return Check("headings", 4, 10, "no h1" if 1 not in levels else f"{levels.count(1)} h1")
    if levels[0] != 1:
        return Check("headings", 6, 10, f"begins with h{levels[0]}, before the h1")
    for above, below in pairwise(levels):
        if below > above + 1:
            return Check("headings", 7, 10, f"h{below} follows h{above}")
    return Check("headings", 10, 10)


def links(answer: Answer, page: Page) -> Check:
    """There are some, and those within the page lead somewhere."""
    if not page.internal_links + page.external_links:
        return Check("links", 3, 10, "no links")
    if page.broken_anchors:
        points = max(0, 8 - 2 * len(page.broken_anchors))
        shown = ", ".join(one[:30] for one in page.broken_anchors[:3])
        return Check("links", points, 10, f"leads nowhere: {shown}")
    return Check("links", 10, 10)


def alt_texts(answer: Answer, page: Page) -> Check:
    """In proportion to the images that have one."""
    missing = page.images_without_alt
    if not missing:
        return Check("alt texts", 10, 10)
    return Check(
        "alt texts", 10 * (page.images - missing) // page.images, 10, f"{missing} of {page.images} images without alt"
    )


def description(answer: Answer, page: Page) -> Check:
    """50 to 160 characters."""
    if not page.description:
        return Check("description", 0, 8, "no meta description")
    if not 50 <= len(page.description) <= 160:
        return Check("description", 5, 8, f"description of {len(page.description)} characters; 50 to 160 are best")
    return Check("description", 8, 8)


def language(answer: Answer, page: Page) -> Check:
    """Screen readers need it."""
    return Check("language", 6, 6) if page.lang else Check("language", 0, 6, "no lang")


def viewport(answer: Answer, page: Page) -> Check:
    """Telephones need it."""
    return Check("viewport", 6, 6) if page.has_viewport else Check("viewport", 0, 6, "no viewport")


CHECKS: tuple[Callable[[Answer, Page], Check], ...] = (
    status,
    timing,
    size,
    title,
    headings,
    links,
    alt_texts,
    description,
    language,
    viewport,
)


def _between(value: float, best: float, worst: float, points: int) -> int:
    share = (worst - value) / (worst - best)
    return round(points * min(1.0, max(0.0, share)))
