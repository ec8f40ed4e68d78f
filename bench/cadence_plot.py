"""The picture of docs/explanation/when-to-look.md: looks and delay as shares of the fallback's. Plain SVG."""

from collections.abc import Mapping
from html import escape

LABELS_PX, BARS_PX, ROW_PX, HEAD_PX = 200, 440, 46, 44
LOOKS, DELAY, INK, GRID = "#2e7d5b", "#3b6ea5", "#222", "#ccc"


def bars_svg(shares: Mapping[str, tuple[float, float]]) -> str:
    """Two bars for each family of durations; the line at 1 is the fallback, shorter is better."""
    width, height = LABELS_PX + BARS_PX + 60, HEAD_PX + ROW_PX * len(shares) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Looks and detection delay of a learned cadence, as shares of those of doubling waits</title>",
        f'<g font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LABELS_PX}" y="16"><tspan fill="{LOOKS}">looks</tspan>, <tspan fill="{DELAY}">delay</tspan>',
        "; 1 is the backoff, shorter is better</text>",
    ]
    for step in (0.25, 0.5, 0.75, 1.0):
        x = LABELS_PX + step * BARS_PX
        stroke = INK if step == 1.0 else GRID
        parts.append(f'<line x1="{x:.0f}" y1="{HEAD_PX - 4}" x2="{x:.0f}" y2="{height - 8}" stroke="{stroke}"/>')
        parts.append(f'<text x="{x:.0f}" y="{HEAD_PX - 8}" text-anchor="middle" font-size="10">{step:g}</text>')
    for row, (name, pair) in enumerate(shares.items()):
        y = HEAD_PX + ROW_PX * row
        parts.append(f'<text x="{LABELS_PX - 8}" y="{y + 25}" text-anchor="end">{escape(name)}</text>')
        for index, (value, colour) in enumerate(zip(pair, (LOOKS, DELAY), strict=True)):
            top, long = y + 4 + index * 18, min(value, 1.1) * BARS_PX
            parts.append(f'<rect x="{LABELS_PX}" y="{top}" width="{long:.1f}" height="16" fill="{colour}"/>')
            parts.append(f'<text x="{LABELS_PX + long + 5:.1f}" y="{top + 12}" font-size="11">{value:.2f}</text>')
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"
