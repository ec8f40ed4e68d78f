"""What is on a page: the facts that are scored, read from its HTML. Pure, and at ease with broken markup."""

from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

from msgspec import Struct

TEXT_LIMIT = 500
"""Of a title or a description: what is longer is cut off."""


class Page(Struct, frozen=True, kw_only=True):
    """The facts."""

    title: str | None = None
    """None: there is no title element."""
    description: str | None = None
    lang: str | None = None
    has_viewport: bool = False
    headings: tuple[int, ...] = ()
    """Their levels, in order: 1 for h1."""
    images: int = 0
    images_without_alt: int = 0
    """An empty alt is a statement (decoration), a missing one is an omission."""
    internal_links: int = 0
    external_links: int = 0
    broken_anchors: tuple[str, ...] = ()
    """Links to a place in the page itself that is not there."""


def read_page(html: str, url: str) -> Page:
    """The facts of this HTML, which was found at this address."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    here = _place(url)
    internal = external = 0
    broken: dict[str, None] = {}
    for href in reader.hrefs:
        target = _joined(url, href)
        if target is None:
            continue
        if _place(target)[0] != here[0]:
            external += 1
            continue
        internal += 1
        fragment = unquote(urlsplit(target).fragment)
        # "#" and "#top" lead to the beginning of any page.
        if _place(target) == here and fragment and fragment.lower() != "top" and fragment not in reader.anchors:
            broken[f"#{fragment}"] = None
    return Page(
        title=None if reader.title is None else _tidy(reader.title),
        description=None if reader.description is None else _tidy(reader.description),
        lang=reader.lang,
        has_viewport=reader.has_viewport,
        headings=tuple(reader.headings),
        images=reader.images,
        images_without_alt=reader.images_without_alt,
        internal_links=internal,
        external_links=external,
        broken_anchors=tuple(broken),
    )


def _joined(url: str, href: str) -> str | None:
    """The web address that a link leads to; None for mail, telephone, scripts and what is not an address at all."""
    try:
        target = urljoin(url, href.strip())
        return target if urlsplit(target).scheme in {"http", "https"} else None
    except ValueError:
        return None


def _place(url: str) -> tuple[str, str, str]:
    """Host, path and query: what tells one page from another."""
    parts = urlsplit(url)
    return parts.netloc.lower(), parts.path or "/", parts.query


def _tidy(text: str) -> str:
    return " ".join(text.split())[:TEXT_LIMIT]


class _Reader(HTMLParser):
    """Gathers while the parser goes through the text once."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: str | None = None
        self.description: str | None = None
        self.lang: str | None = None
        self.has_viewport = False
        self.headings: list[int] = []
        self.images = 0
        self.images_without_alt = 0
        self.hrefs: list[str] = []
        self.anchors: set[str] = set()
        self._in_title = False
        self._in_svg = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in reversed(attrs)}  # of two, browsers take the first
        self.anchors.add(values.get("id", ""))
        match tag:
            case "html":
                self.lang = self.lang or values.get("lang", "").strip() or None
            # A drawing (svg) has titles of its own.
            case "svg":
                self._in_svg += 1
            case "title" if self.title is None and not self._in_svg:
                self.title, self._in_title = "", True
            case "meta":
                self._take_meta(values)
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self.headings.append(int(tag[1]))
            case "img":
                self.images += 1
                self.images_without_alt += "alt" not in values
            case "a":
                self.anchors.add(values.get("name", ""))
                self.hrefs += [values["href"]] if "href" in values else []

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag == "svg":
            self._in_svg = max(0, self._in_svg - 1)

    def handle_data(self, data: str) -> None:
        if self._in_title and self.title is not None:
            self.title += data

    def _take_meta(self, values: dict[str, str]) -> None:
        name = values.get("name", "").strip().lower()
        if name == "description" and self.description is None:
            self.description = values.get("content", "")
        elif name == "viewport":
            self.has_viewport = self.has_viewport or bool(values.get("content", "").strip())
