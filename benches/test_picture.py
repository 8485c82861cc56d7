# SPDX-License-Identifier: BSD-3-Clause
"""python3 -m unittest discover benches"""

import unittest

from picture import NAMES, RIGHT, Scale, picture, place, short


def row(**fields):
    return {"name": "a", "unit": "us", "failed": False, "others": 0.1, "median": 3, "min": 2, "max": 5, **fields}


RATIO = {"median": 1.5, "min": 1, "max": 2.5}
FASTER = row(name="fast", ratio={"median": 0.5, "min": 0.4, "max": 0.9}, target={"op": "<=", "bound": 1.2}, held=True)
SLOWER = row(name="slow", ratio={"median": 0.5, "min": 0.4, "max": 0.9}, target={"op": ">=", "bound": 0.95}, held=False)
BROKEN = {"name": "broken", "unit": "us", "failed": True, "others": 0, "target": {"op": "<=", "bound": 1}}


def drawn(*rows):
    return picture({"time": "2026-01-02T03:04:05Z", "kernel": "6.1", "cpu": None, "cpus": 2, "rows": rows})


class Picture(unittest.TestCase):
    def test_a_row_with_a_reference_is_at_its_ratio(self):
        found = place(row(others=0.11, ratio=RATIO, target={"op": "<=", "bound": 1.2}))
        self.assertEqual(found, ([1, 1.5, 2.5], 1.2, "1.50 (≤ 1.2)*"))

    def test_one_without_is_at_its_share_of_the_target(self):
        found = place(row(unit="KiB", median=32, min=16, max=64, target={"op": "<=", "bound": 64}))
        self.assertEqual(found, ([0.25, 0.5, 1.0], 1, "32.0 KiB (≤ 64)"))

    def test_one_that_failed_or_has_neither_is_nowhere(self):
        self.assertEqual([place(BROKEN), place(row())], [None, None])

    def test_numbers_are_short(self):
        self.assertEqual([short(n) for n in (0, 1234, 12.34, 0.1234, 0.001)], ["0", "1234", "12.3", "0.123", "1e-3"])

    def test_the_scale_is_logarithmic_and_what_is_outside_is_at_its_edge(self):
        scale = Scale([row(ratio={"median": 1, "min": 0.001, "max": 1000})])
        left, a, middle, b, right = [scale.x(ratio) for ratio in (0.01, 0.1, 1, 10, 100)]
        self.assertEqual((middle - left, b - a), (right - middle, middle - left))
        self.assertEqual((scale.x(0), scale.x(1e9), left, right), (left, right, NAMES, RIGHT))
        self.assertEqual(len(scale.ticks()), 13)

    def test_every_row_is_named_and_counted(self):
        svg = drawn(FASTER, SLOWER, BROKEN)
        for word in ("fast", "slow", "broken", "failed", "target held: 1", "not held: 1", "2026-01-02", "2 CPUs"):
            self.assertIn(f"{word}", svg)
        # a circle in the legend, and one for each row that has that colour
        circles = [sum("<circle" in line and colour in line for line in svg.splitlines()) for colour in ("#0072B2", "#D55E00")]
        self.assertEqual(circles, [2, 2])

    def test_no_rows_are_a_picture_too(self):
        svg = drawn()
        self.assertTrue(svg.startswith("<svg ") and svg.endswith("</svg>\n"))


if __name__ == "__main__":
    unittest.main()
