"""The ratio charts as SVG: a bar for each case, and an overview with a dot for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from .summary import Row, mean

LEFT, WIDTH, LINE, TOP = 330, 420, 15, 60
LOW, HIGH = 0.25, 16.0
NOTES = {"kept": ", kept outputs", "call, fastmath": ", fastmath"}
GOOD, EVEN, SHORT, INK = "#2a7f62", "#8aa6a3", "#c8553d", "#222222"


def place(ratio: float) -> float:
    """The x of a ratio, on a logarithmic axis cut off at both ends."""
    part = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return LEFT + WIDTH * part


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


def axis(bottom: float) -> list[str]:
    """Lines and labels of the ratios."""
    parts = []
    for tick in (0.25, 0.5, 1, 2, 4, 8, 16):
        x = place(tick)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}" stroke="#999" '
            f'stroke-width="{1.4 if tick == 1 else 0.4}"/>'
        )
        parts.append(text(x, TOP - 6, f"{tick:g}x", 'text-anchor="middle"'))
    return parts


def page(height: float, title: str, words: str, parts: Sequence[str]) -> str:
    """The whole picture."""
    total = LEFT + WIDTH + 140
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height}" '
        f'width="{total}" height="{height}" font-family="sans-serif" font-size="11" '
        f'fill="{INK}">',
        f'<rect width="{total}" height="{height}" fill="white"/>',
        text(12, 22, title, 'font-size="15" font-weight="bold"'), text(12, 40, words), *parts,
        "</svg>",
    ]) + "\n"


def color(ratio: float) -> str:
    return GOOD if ratio >= 1.05 else SHORT if ratio < 0.95 else EVEN


def overview(rows: Sequence[Row], letters: dict[str, str], title: str) -> str:
    """A dot for each case, a line of them for each letter and kind of outputs."""
    parts: list[str] = []
    y = TOP + 6
    for letter, kind in dict.fromkeys((r.letter, r.kind) for r in rows):
        group = [r.ratio for r in rows if (r.letter, r.kind) == (letter, kind)]
        middle = mean(group)
        name = f"({letter}) {letters[letter]}{NOTES.get(kind, '')}"
        parts.append(text(LEFT - 8, y + 14, name, 'text-anchor="end"'))
        parts += [
            f'<circle cx="{place(r):.1f}" cy="{y + 10}" r="4" fill="{color(r)}" '
            'fill-opacity="0.45"/>' for r in group
        ]
        x = place(middle)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 20}" stroke="{INK}" '
            'stroke-width="2.5"/>'
        )
        parts.append(text(LEFT + WIDTH + 10, y + 14, f"{middle:.2f} of {len(group)} cases"))
        y += 26
    return page(y + 14, title, "Speed against the best peer of each case, a dot each; the mark is "
                "the geometric mean.", [*axis(y), *parts])


def draw(rows: Sequence[Row], letters: dict[str, str], title: str) -> str:
    """SVG of these rows, grouped by letter."""
    parts: list[str] = []
    y = TOP
    for letter in dict.fromkeys(r.letter for r in rows):
        group = [r for r in rows if r.letter == letter]
        y += LINE
        words = f"({letter}) {letters[letter]}: mean {mean(r.ratio for r in group):.2f}"
        parts.append(text(12, y + 11, words, 'font-weight="bold"'))
        y += LINE + 4
        for r in group:
            one, end = place(1.0), place(r.ratio)
            name = r.case[2:] + NOTES.get(r.kind, "")
            parts.append(text(LEFT - 8, y + 11, name, 'text-anchor="end"'))
            parts.append(
                f'<rect x="{min(one, end):.1f}" y="{y + 2}" width="{abs(end - one):.1f}" '
                f'height="{LINE - 4}" fill="{color(r.ratio)}"/>'
            )
            parts.append(text(LEFT + WIDTH + 10, y + 11, f"{r.ratio:.2f}  {r.best}"))
            y += LINE
    return page(
        y + 30, title, "Speed against the best peer of each case, which is named at the right; "
        "beyond 1x graphc is faster.", [*axis(y + 6), *parts],
    )
