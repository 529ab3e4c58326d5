"""Bar charts as SVG, without a library: groups of bars, or of stacks of parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

_COLOURS = ("#4e79a7", "#a0b4cc", "#9c9c9c", "#e15759", "#f28e2b", "#59a14f")
_WIDTH, _HEIGHT = 760, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 78, 40
_LINES = 5
"""About so many lines across."""
_INNER = 0.82
"""The part of a group's width that its bars take."""


@dataclass(frozen=True)
class Chart:
    """Groups of bars; a bar is a number, or parts that stand on each other."""

    title: str
    unit: str
    groups: Sequence[str]
    bars: Mapping[str, Sequence[Mapping[str, float] | float | None]]
    """By the bar's name, a value a group; None: there is none."""
    parts: Sequence[str] = field(default_factory=tuple)
    """The names of the parts, from below; empty where bars are plain numbers."""


def drawn(chart: Chart) -> str:
    """The chart as an SVG document."""
    most = max(
        (_sum(v) for values in chart.bars.values() for v in values if v is not None), default=0
    )
    step = _step(most)
    top = step * max(1, -(-most // step))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="20" font-size="15">{escape(chart.title)}</text>',
        *_legend(chart.parts or list(chart.bars)),
    ]
    value = 0.0
    while value <= top + step / 2:
        y = _y(value, top)
        lines += [
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>',
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>',
        ]
        value += step
    lines.append(
        f'<text x="{_LEFT - 6}" y="{_TOP - 14}" text-anchor="end">{escape(chart.unit)}</text>'
    )
    for at, group in enumerate(chart.groups):
        lines += _group(chart, at, group, top)
    return "\n".join([*lines, "</svg>", ""])


def _group(chart: Chart, at: int, name: str, top: float) -> list[str]:
    width = (_WIDTH - _LEFT - _RIGHT) / len(chart.groups)
    left = _LEFT + at * width + width * (1 - _INNER) / 2
    each = width * _INNER / len(chart.bars)
    middle = _LEFT + (at + 0.5) * width
    label_y = _HEIGHT - (8 if chart.parts else 16)
    lines = [f'<text x="{middle:.1f}" y="{label_y}" text-anchor="middle">{escape(name)}</text>']
    for number, (bar, values) in enumerate(chart.bars.items()):
        value, x = values[at], left + number * each
        if value is None:
            continue
        lines += _bar(chart, value, number, x, each, top)
        y = _y(_sum(value), top) - 4
        centre = x + each / 2
        lines.append(
            f'<text x="{centre:.1f}" y="{y:.1f}" text-anchor="middle" font-size="10">'
            f"{_short(_sum(value))}</text>"
        )
        if chart.parts:
            lines.append(
                f'<text x="{centre:.1f}" y="{_HEIGHT - _BOTTOM + 14}" text-anchor="middle" '
                f'font-size="9">{escape(bar)}</text>'
            )
    return lines


def _bar(
    chart: Chart,
    value: Mapping[str, float] | float,
    number: int,
    x: float,
    width: float,
    top: float,
) -> list[str]:
    pieces: list[tuple[str, float]]
    if isinstance(value, Mapping):
        pieces = [
            (_COLOURS[at % len(_COLOURS)], value.get(part, 0.0))
            for at, part in enumerate(chart.parts)
        ]
    else:
        pieces = [(_COLOURS[number % len(_COLOURS)], value)]
    lines, base = [], 0.0
    for colour, height in pieces:
        y, bottom = _y(base + height, top), _y(base, top)
        lines.append(
            f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{width - 2:.1f}" '
            f'height="{bottom - y:.1f}" fill="{colour}"/>'
        )
        base += height
    return lines


def _legend(names: Sequence[str]) -> list[str]:
    lines, x, y = [], float(_LEFT), 40
    for at, name in enumerate(names):
        width = 22 + 6.4 * len(name)
        if x + width > _WIDTH - _RIGHT:
            x, y = float(_LEFT), y + 16
        lines += [
            f'<rect x="{x:.1f}" y="{y - 9}" width="10" height="10" '
            f'fill="{_COLOURS[at % len(_COLOURS)]}"/>',
            f'<text x="{x + 14:.1f}" y="{y}">{escape(name)}</text>',
        ]
        x += width + 8
    return lines


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP)


def _sum(value: Mapping[str, float] | float) -> float:
    return sum(value.values()) if isinstance(value, Mapping) else value


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _step(most: float) -> float:
    """A round number (1, 2 or 5 times a power of ten), of which about `_LINES` make the most."""
    step = 10.0 ** len(str(int(most)))
    while step * _LINES > most * 1.5 and step > 1e-6:
        for part in (2, 2.5, 2):
            step /= part
            if step * _LINES <= most * 1.5:
                break
    return step
