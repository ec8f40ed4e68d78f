"""The services of the demo go up and down in all formats, and everpoll recognizes each."""

import pytest

from everpoll.cli.demo_formats import FORMATS
from everpoll.monitors.reading import read

EXPECTED = {
    "shop": ("spring", {"up", "down"}),
    "search": ("proactive-deps", {"up", "degraded"}),
    "storage": ("health+json", {"up", "degraded"}),
    "mail": ("aspnet", {"up", "down"}),
    "cluster": ("kubernetes", {"up", "down"}),
    "payments": ("prometheus", {"up", "degraded"}),
    "website": ("plain", {"up"}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_service_is_recognised_in_all_its_states(name: str) -> None:
    """Within half a minute of the demo's age."""
    seen = set()
    for age_s in range(36):
        answer = FORMATS[name](float(age_s))
        head, _, body = answer.sent().partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        report = read(body, content_type=answer.media, status=answer.status)
        assert report.format == EXPECTED[name][0]
        seen.add(report.status.value)
    assert seen == EXPECTED[name][1]
