"""The loss curves of a run as one SVG picture."""

from __future__ import annotations

import math
from html import escape
from statistics import fmean

from tunesmith_core.messages import Message, said
from tunesmith_core.report.facts import Series

WIDTH, HEIGHT, MARGIN = 760, 260, 44
MAX_POINTS = 300
"""Of a line; more can't be told apart at this width."""


LOSSES = (Message("Loss by step"), Message("training loss"), Message("held-out loss"))
REWARDS = (Message("Reward by step"), Message("reward in training"), Message("held-out reward"))
"""The title of the picture and what its two lines are called."""


def curves(training: Series, held_out: Series, words: tuple[Message, Message, Message] = LOSSES) -> str:
    """Return the curves as SVG, "" where nothing was measured; values that are not finite are left out."""
    lines = [_thinned(series) for series in (training, held_out)]
    points = [point for line in lines for point in line]
    if len(points) < 2:
        return ""
    last = max(step for step, _ in points) or 1
    low, high = min(loss for _, loss in points), max(loss for _, loss in points)
    span = (high - low) or 1.0

    def place(point: tuple[float, float]) -> str:
        x = MARGIN + (WIDTH - 2 * MARGIN) * point[0] / last
        y = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (point[1] - low) / span
        return f"{x:.1f},{y:.1f}"

    title, *names = words
    drawn = [
        f'<polyline class="{kind}" points="{" ".join(map(place, line))}"><title>{escape(said(name))}</title></polyline>'
        for kind, name, line in zip(("training", "heldout"), names, lines, strict=True)
    ]
    dots = ['<circle class="heldout" cx="{}" cy="{}" r="3"/>'.format(*place(point).split(",")) for point in lines[1]]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(said(title))}">'
        f'<path class="axis" d="M{MARGIN},{MARGIN} V{HEIGHT - MARGIN} H{WIDTH - MARGIN}"/>'
        f'<text x="4" y="{MARGIN + 4}">{high:.3g}</text><text x="4" y="{HEIGHT - MARGIN + 4}">{low:.3g}</text>'
        f'<text x="{MARGIN}" y="{HEIGHT - 16}">0</text>'
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 16}" text-anchor="end">{last:g}</text>'
        f"{''.join(drawn)}{''.join(dots)}</svg>"
        f'<p class="legend"><i class="training"></i>{escape(said(names[0]))} <i class="heldout"></i>'
        f"{escape(said(names[1]))}</p>"
    )


def _thinned(series: Series) -> list[tuple[float, float]]:
    """Return the points of a line in order, neighbors averaged where there are too many."""
    points = [(float(step), loss) for step, loss in sorted(series.items()) if math.isfinite(loss)]
    size = math.ceil(len(points) / MAX_POINTS) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(fmean(step for step, _ in group), fmean(loss for _, loss in group)) for group in groups]
