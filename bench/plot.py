"""The plot: one bar a ratio, as a share of its target, on a logarithmic scale. Plain SVG, nothing to install."""

import math
from collections.abc import Sequence
from html import escape

from bench.report import Ratio

LABELS_PX, BARS_PX, FIGURES_PX, ROW_PX, HEAD_PX = 430, 420, 170, 24, 46
LEAST, MOST = 0.25, 16.0
MET, MISSED, INK, GRID = "#2e7d5b", "#c0392b", "#222", "#ccc"


def ratios_svg(ratios: Sequence[Ratio]) -> str:
    """Those that have a target; the line at 1 is the target, to the right of it is better."""
    shown = [(one, one.margin) for one in ratios if one.margin is not None]
    width, height = LABELS_PX + BARS_PX + FIGURES_PX, HEAD_PX + ROW_PX * len(shown) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<g font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        '<text x="12" y="20" font-size="14" font-weight="600">measured against the targets (1 = target)</text>',
    ]
    for step in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
        x = _x(step)
        stroke = INK if step == 1.0 else GRID
        parts.append(f'<line x1="{x:.0f}" y1="{HEAD_PX - 6}" x2="{x:.0f}" y2="{height - 12}" stroke="{stroke}"/>')
        parts.append(f'<text x="{x:.0f}" y="{HEAD_PX - 10}" text-anchor="middle">{step:g}</text>')
    for number, (one, margin) in enumerate(shown):
        parts += _bar(one, margin, HEAD_PX + ROW_PX * number)
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _bar(one: Ratio, margin: float, y: int) -> list[str]:
    start, end = sorted((_x(1.0), _x(margin)))
    width, colour = max(end - start, 1.5), MET if margin >= 1 else MISSED
    return [
        f'<text x="{LABELS_PX - 8}" y="{y + 15}" text-anchor="end">{escape(one.label)}</text>',
        f'<rect x="{start:.1f}" y="{y + 3}" width="{width:.1f}" height="{ROW_PX - 8}" fill="{colour}"/>',
        f'<text x="{LABELS_PX + BARS_PX + 10}" y="{y + 15}">{one.value:.2f} ({escape(one.target)})</text>',
    ]


def _x(margin: float) -> float:
    share = math.log(min(max(margin, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return LABELS_PX + share * BARS_PX
