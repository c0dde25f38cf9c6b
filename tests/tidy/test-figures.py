#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No figure of docs/figures.md is older than the newest release; a row that is measured anew gets the day."""
import datetime
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["SDTRAIN_SOURCE"])
sys.path.insert(0, str(ROOT / "ops"))
import figures  # noqa: E402

CHANGELOG = "# Changelog\n\n## Not released yet\n\n- x\n\n## 0.3.0 (2026-12-01)\n\n## 0.2.0 (2026-11-22)\n"
PAGE = ("<!-- begin: bench -->\n\n| figure | measured | on |\n|---|---|---|\n| `a` | 1 | 2026-11-30 |\n| `b` | 2 | 2026-12-01 |\n| `c` | 3 | soon |\n\n"
        "<!-- end -->\n\n<!-- begin: other -->\n\n| x | y |\n|---|---|\n| a | 1 |\n\n<!-- end -->\n")


class Figures(unittest.TestCase):
    def test_none_is_older_than_the_release(self):
        page = (ROOT / "docs/figures.md").read_text()
        self.assertGreater(len(list(figures.rows_of(page))), 140)
        self.assertEqual(list(figures.old_rows(page, (ROOT / "CHANGELOG.md").read_text())), [])

    def test_old_ones_are_named(self):
        self.assertEqual(list(figures.old_rows(PAGE, CHANGELOG)), [
            "docs/figures.md: bench: `a`: measured on 2026-11-30, before 0.3.0 of 2026-12-01: measure it again",
            "docs/figures.md: bench: `c`: 'soon' is not a day"])

    def test_a_row_that_is_measured_gets_the_day(self):
        today = datetime.date.today().isoformat()
        with tempfile.TemporaryDirectory(prefix="sdtrain-test-figures-") as folder:
            page = pathlib.Path(folder) / "figures.md"
            page.write_text(PAGE)
            self.assertTrue(figures.write("bench", "a", {"measured": "5"}, page))
            self.assertTrue(figures.write("other", "a", {"y": "5"}, page))
            self.assertIn(f"| `a` | 5 | {today} |\n| `b` | 2 | 2026-12-01 |\n", page.read_text())
            self.assertIn("| a | 5 |\n", page.read_text())
            self.assertTrue(figures.write("bench", "b", {"measured": "7"}, page, dated=False))
            self.assertIn("| `b` | 7 | 2026-12-01 |\n", page.read_text())


if __name__ == "__main__":
    unittest.main()
