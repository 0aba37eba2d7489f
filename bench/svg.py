"""Draws figures as SVG: loss curves (losses in the upper panel, differences to a reference in the
lower), and seconds per step as bars."""

import math
from html import escape

WIDTH, LEFT, RIGHT = 800, 70, 20
UPPER = (40, 300)  # top and bottom of the panels
LOWER = (350, 560)
COLOURS = {
    "tilewright_bf16": "#d62728",
    "tilewright_fp32": "#1f77b4",
    "pytorch_fp32": "#222222",
    "pytorch_bf16": "#ff9f1c",
}
NAMES = {
    "tilewright_bf16": "Tilewright bf16",
    "tilewright_fp32": "Tilewright fp32",
    "pytorch_fp32": "PyTorch fp32",
    "pytorch_bf16": "PyTorch bf16 autocast",
}


def polyline(points, name, dash=""):
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{places}" fill="none" stroke="{COLOURS[name]}"{dashes}/>'


def text(x, y, words, anchor="start", fill="#222222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def rule(y):
    return f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'


def loss_figure(title, curves, reference):
    """`curves`: losses by name, of equal length; differences are relative to curves[reference]."""
    steps = len(curves[reference])

    def across(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / max(1, steps - 1)

    parts = [text(LEFT, 22, escape(title))]

    every = [loss for curve in curves.values() for loss in curve]
    low, high = int(min(every) * 10) / 10, math.ceil(max(every) * 10) / 10

    def loss_height(loss):
        return UPPER[1] - (UPPER[1] - UPPER[0]) * (loss - low) / (high - low)

    for tenth in range(round(low * 10), round(high * 10) + 1):
        parts.append(rule(loss_height(tenth / 10)))
        parts.append(text(LEFT - 8, loss_height(tenth / 10) + 4, f"{tenth / 10:.1f}", "end"))
    for name, curve in curves.items():
        points = [(across(i), loss_height(loss)) for i, loss in enumerate(curve)]
        parts.append(polyline(points, name, "" if name == reference else "5 3"))
    for place, name in enumerate(curves):
        parts.append(text(LEFT + 170 * place, UPPER[1] + 24, NAMES[name], fill=COLOURS[name]))

    distances = {
        name: [max(abs(a - b), 1e-9) for a, b in zip(curve, curves[reference], strict=True)]
        for name, curve in curves.items()
        if name != reference
    }
    every = [value for values in distances.values() for value in values]
    lowest, highest = int(math.log10(min(every)) // 1), math.ceil(math.log10(max(every)))

    def distance_height(value):
        share = (math.log10(value) - lowest) / max(1, highest - lowest)
        return LOWER[1] - (LOWER[1] - LOWER[0]) * share

    parts.append(text(LEFT, LOWER[0] - 6, f"Distance to {NAMES[reference]}"))
    for power in range(lowest, highest + 1):
        parts.append(rule(distance_height(10.0**power)))
        parts.append(text(LEFT - 8, distance_height(10.0**power) + 4, f"1e{power}", "end"))
    for name, values in distances.items():
        points = [(across(i), distance_height(value)) for i, value in enumerate(values)]
        parts.append(polyline(points, name))
    for step in range(0, steps + 1, 10):
        if step:
            parts.append(text(across(step - 1), LOWER[1] + 18, str(step), "middle"))
    parts.append(text(WIDTH / 2, LOWER[1] + 36, "step", "middle"))

    height = LOWER[1] + 46
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif" font-size="12" stroke-width="1.5">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            '<g fill="#222222">',
            *(part.replace("<text ", '<text stroke="none" ') for part in parts),
            "</g>",
            "</svg>",
            "",
        ]
    )


def step_figure(rows, cpu):
    """Bars of the seconds per step of both sides for each row of the results of `step`."""
    left, longest, height = 250, 380, 22
    parts = [text(12, 24, escape(f"Seconds per step on {cpu}"))]
    most = max((row[side]["median_seconds"] for row in rows for side in ("tilewright", "pytorch")),
               default=1)
    top = 40
    for row in rows:
        task = " QA" if row["task"] == "qa" else ""
        label = f"{row['model']}{task} {row['batch']} x {row['length']}"
        parts.append(text(left - 8, top + height, escape(label), "end"))
        for side, colour in (("tilewright", "#d62728"), ("pytorch", "#222222")):
            value = row[side]["median_seconds"]
            length = longest * value / most
            parts.append(f'<rect x="{left}" y="{top + 3}" width="{length:.1f}" '
                         f'height="{height - 6}" fill="{colour}"/>')
            note = f"; {row['speed_up']:.2f} x" if side == "tilewright" else ""
            parts.append(text(left + length + 6, top + 15, f"{value:.3f} s{note}"))
            top += height
        top += 10
    for place, (name, colour) in enumerate((("Tilewright", "#d62728"), ("PyTorch", "#222222"))):
        parts.append(text(left + 120 * place, top + 16, name, fill=colour))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 30}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{top + 30}" fill="white"/>',
            *parts,
            "</svg>",
            "",
        ]
    )
