#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws the results of benches/run: the ratio of each row to its reference beside its target. The output is reproducible."""

import json
import math
import sys
from xml.sax.saxutils import escape

WIDTH, LINE, NAMES, NUMBERS, ABOVE, BELOW = 1000, 17, 170, 150, 64, 52
RIGHT = WIDTH - NUMBERS
TICKS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
# Blue and orange are distinguishable for everybody.
HELD, NOT_HELD, NO_TARGET, BLACK = "#0072B2", "#D55E00", "#6E6E6E", "#000000"
DISTURBED = 0.10  # from this share on benches/run marks a row


def short(value):
    """With three digits that say something."""
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 1 else 3
    return f"{value:.{digits}f}" if value >= 0.01 or value == 0 else f"{value:.0e}".replace("e-0", "e-")


def place(row):
    """Where a row is on the scale: lowest, median and highest, its target and what is written beside; None if it is nowhere."""
    target = row.get("target")
    wanted = f" ({'≤' if target['op'] == '<=' else '≥'} {target['bound']:g})" if target else ""
    mark = "*" if row["others"] > DISTURBED else ""
    if "ratio" in row:
        at = row["ratio"]
        return [at[key] for key in ("min", "median", "max")], target and target["bound"], f"{at['median']:.2f}{wanted}{mark}"
    if "median" not in row or not target or target["bound"] <= 0:
        return None
    # without a reference: the value as a share of the target
    return [row[key] / target["bound"] for key in ("min", "median", "max")], 1, f"{short(row['median'])} {row['unit']}{wanted}{mark}"


class Scale:
    """Whole powers of ten, with all that is to be seen between them; what is farther away is drawn at the edge."""

    def __init__(self, rows):
        places = [found for found in map(place, rows) if found]
        seen = [1, *(n for at, target, _ in places for n in (at[0], at[2], target or at[1]))]
        self.low = min(-1, math.floor(math.log10(max(min(seen), TICKS[0]))))
        self.high = max(1, math.ceil(math.log10(min(max(seen), TICKS[-1]))))

    def x(self, ratio):
        share = (math.log10(min(max(ratio, 10 ** self.low), 10 ** self.high)) - self.low) / (self.high - self.low)
        return math.floor(NAMES + share * (RIGHT - NAMES) + 0.5)

    def ticks(self):
        return [tick for tick in TICKS if 10 ** self.low * 0.99 <= tick <= 10 ** self.high * 1.01]


class Drawing:
    def __init__(self, height):
        self.parts = [f'<svg width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg">']
        self.box(0, 0, WIDTH, height, "#FFFFFF", 1)

    def text(self, x, y, anchor, text, colour=BLACK, size=11):
        self.parts.append(f'<text x="{x}" y="{y}" dy="0.5ex" text-anchor="{anchor}" font-family="sans-serif" font-size="{size / 1.24}"'
                          f' opacity="1" fill="{colour}">\n' + escape(text, {"'": "&apos;", '"': "&quot;"}) + "\n</text>")

    def dot(self, x, y, colour):
        self.parts.append(f'<circle cx="{x}" cy="{y}" r="4" opacity="1" fill="{colour}" stroke="none" stroke-width="1"/>')

    def box(self, x, y, width, height, colour, opacity):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" opacity="{opacity}" fill="{colour}" stroke="none"/>')

    def line(self, start, end, colour, width=2, opacity=1):
        points = "".join(f"{x},{y} " for x, y in (start, end))
        self.parts.append(f'<polyline fill="none" opacity="{opacity}" stroke="{colour}" stroke-width="{width}" points="{points}"/>')


def head(drawing, table):
    where = f"{table['time'].split('T')[0]}, {(table['cpu'] or 'unknown processor').strip()}, {table['cpus']} CPUs, Linux {table['kernel']}"
    drawing.text(NAMES, 14, "start", "make bench: each row's ratio to its reference, beside its target", size=15)
    drawing.text(NAMES, 32, "start", where, NO_TARGET)
    x = NAMES
    for colour, name, held in ((HELD, "target held", True), (NOT_HELD, "not held", False), (NO_TARGET, "no target", None)):
        drawing.dot(x + 4, 50, colour)
        count = sum(row.get("held") == held and not row["failed"] for row in table["rows"])
        drawing.text(x + 13, 50, "start", f"{name}: {count}")
        x += 110
    drawing.text(x, 50, "start", "| target, shaded where it holds; lines: lowest to highest; *: others used more than 10 % of the CPUs")


def lines(drawing, scale, bottom):
    for tick in scale.ticks():
        x = scale.x(tick)
        drawing.line((x, ABOVE), (x, bottom), NO_TARGET, 1, 0.9 if tick == 1 else 0.25)
        drawing.text(x, bottom + 11, "middle", f"{tick:g}")
    drawing.text((NAMES + RIGHT) // 2, bottom + 32, "middle",
                 "ratio to the reference, logarithmic; of a row without one: its value as a share of the target")


def draw_row(drawing, scale, top, row):
    y, bottom = top + LINE // 2, top + LINE
    drawing.text(NAMES - 8, y, "end", row["name"])
    found = place(row)
    if found is None:
        drawing.text(RIGHT + 8, y, "start", *(("failed", NOT_HELD) if row["failed"] else (row["unit"], NO_TARGET)))
        return
    (low, median, high), target, text = found
    colour = {True: HELD, False: NOT_HELD, None: NO_TARGET}[row.get("held")]
    if target is not None:
        x = scale.x(target)
        left, right = (NAMES, x) if row["target"]["op"] == "<=" else (x, RIGHT)
        drawing.box(left, top + 2, right - left, LINE - 4, HELD, 0.08)
        drawing.line((x, top + 2), (x, bottom - 2), BLACK)
    drawing.line((scale.x(low), y), (scale.x(high), y), colour)
    drawing.dot(scale.x(median), y, colour)
    drawing.text(RIGHT + 8, y, "start", text, colour)


def picture(table):
    bottom = ABOVE + LINE * len(table["rows"])
    drawing, scale = Drawing(bottom + BELOW), Scale(table["rows"])
    head(drawing, table)
    lines(drawing, scale, bottom)
    for n, row in enumerate(table["rows"]):
        draw_row(drawing, scale, ABOVE + LINE * n, row)
    return "\n".join([*drawing.parts, "</svg>\n"])


def main(arguments):
    if len(arguments) != 2:
        print("usage: benches/picture.py FROM.json TO.svg\n\nDraws what benches/run has written.", file=sys.stderr)
        return 2
    with open(arguments[0]) as file:
        svg = picture(json.load(file))
    with open(arguments[1], "w") as file:
        file.write(svg)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
