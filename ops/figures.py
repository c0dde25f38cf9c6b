# SPDX-License-Identifier: Apache-2.0
"""Rows of the tables in docs/figures.md, put there by the programs that measure: `ops/bench --figures`, and
`tests/chaos/test-chaos-*.py --figures`.

A table lies between <!-- begin: NAME --> and <!-- end -->. Its first cell names the row. What is measured replaces the cells
of its row, and its column "on" gets the day; a row that is not there yet is told to standard error, since a person says what it
means. tests/tidy/test-figures.py refuses rows that are
older than the newest release.
"""
import datetime
import fcntl
import pathlib
import re
import sys

PAGE = next(folder / "docs/figures.md" for folder in pathlib.Path(__file__).resolve().parents if (folder / "docs/figures.md").exists())


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def update(text, table, row, cells, dated):
    """The text with these cells, {column: value}, in that row of that table; None if it has no such row."""
    begin = text.index("<!-- begin: %s -->" % table)
    end = text.index("<!-- end -->", begin)
    lines = text[begin:end].split("\n")
    rows = [i for i, line in enumerate(lines) if line.startswith("|")]
    columns = cells_of(lines[rows[0]])
    if dated and "on" in columns:
        cells = {"on": datetime.date.today().isoformat(), **cells}
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


def write(table, row, cells, page=PAGE, dated=True):
    """Several programs may measure at once. Not dated: the row has older cells that were not measured again."""
    with open(page, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = update(file.read(), table, row, cells, dated)
        if text is None:
            print("docs/figures.md has no row %s in its table %s" % (row, table), file=sys.stderr)
            return False
        file.seek(0)
        file.write(text)
        file.truncate()
        return True


def rows_of(text):
    """(table, row, the day in its column "on") of each row of the tables that have one."""
    for name, table in re.findall(r"^<!-- begin: (\S+) -->\n(.*?)^<!-- end -->", text, re.M | re.S):
        lines = [cells_of(line) for line in table.splitlines() if line.startswith("|")]
        if lines and "on" in lines[0]:
            yield from ((name, cells[0], cells[lines[0].index("on")]) for cells in lines[2:])


def old_rows(text, changelog):
    """Complaints: rows that were measured before the newest release was made, or nobody says when."""
    release = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", changelog, re.M)
    for table, row, day in rows_of(text):
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", day):
            yield f"docs/figures.md: {table}: {row}: {day!r} is not a day"
        elif day < release[2]:
            yield f"docs/figures.md: {table}: {row}: measured on {day}, before {release[1]} of {release[2]}: measure it again"
