# SPDX-License-Identifier: Apache-2.0
"""Rows of the tables in docs/figures.md, put there by the programs that measure: `ops/bench --figures`, and
`tests/chaos/test-chaos-*.py --figures`.

A table lies between <!-- begin: NAME --> and <!-- end -->. Its first cell names the row. What is measured replaces the cells
of its row; a row that is not there yet is told to standard error, since a person says what it means.
"""
import fcntl
import pathlib
import sys

PAGE = next(folder / "docs/figures.md" for folder in pathlib.Path(__file__).resolve().parents if (folder / "docs/figures.md").exists())


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def update(text, table, row, cells):
    """The text with these cells, {column: value}, in that row of that table; None if it has no such row."""
    begin = text.index("<!-- begin: %s -->" % table)
    end = text.index("<!-- end -->", begin)
    lines = text[begin:end].split("\n")
    rows = [i for i, line in enumerate(lines) if line.startswith("|")]
    columns = cells_of(lines[rows[0]])
    unknown = set(cells) - set(columns)
    if unknown:
        raise ValueError("docs/figures.md: %s: no column %s" % (table, ", ".join(sorted(unknown))))
    for i in rows[2:]:
        old = cells_of(lines[i])
        if old[0].strip("`") == row:
            new = [cells.get(column, value) for column, value in zip(columns, old)]
            lines[i] = "| " + " | ".join(new) + " |"
            return text[:begin] + "\n".join(lines) + text[end:]
    return None


def replace(table, lines, page=PAGE):
    """Puts these lines in place of a whole table, whose rows are others each time."""
    with open(page, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before, begin, behind = file.read().partition("<!-- begin: %s -->\n" % table)
        if not begin:
            raise ValueError("docs/figures.md has no table %s" % table)
        end = behind.index("<!-- end -->")
        file.seek(0)
        file.write(before + begin + "\n" + "\n".join(lines) + "\n\n" + behind[end:])
        file.truncate()


def write(table, row, cells, page=PAGE):
    """Several programs may measure at once."""
    with open(page, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = update(file.read(), table, row, cells)
        if text is None:
            print("docs/figures.md has no row %s in its table %s" % (row, table), file=sys.stderr)
            return False
        file.seek(0)
        file.write(text)
        file.truncate()
        return True
