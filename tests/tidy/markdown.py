#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules for Markdown that a machine can check.

usage: markdown.py SOURCE-ROOT [FILE...]      every page of the tree without files
A page has one title, on its first line; no level of headings is left out; a blank line stands around headings, fences
and tables; a fence says its language (text for what is none); a line of prose is no wider than .editorconfig says; nothing
ends in blanks; an address is a link or code; no tab; one newline at the end, and no two blank lines in a row.
Prints one line for each break and exits 1 if there is any.
"""
import pathlib
import re
import subprocess
import sys

import english

EDITORCONFIG = (pathlib.Path(__file__).resolve().parents[2] / ".editorconfig").read_text(encoding="utf-8")
WIDTH = int(re.search(r"^\[\*\.md\]\n(?:[^\[]*\n)?max_line_length = (\d+)$", EDITORCONFIG, re.MULTILINE).group(1))
FENCE = re.compile(r"^ *(```+|~~~+) *(\S*)$")
LANGUAGES = {"sh", "c", "json", "text", "diff", "python", "xml", "yaml", "ini", "makefile", "cmake", "gdb", "promql"}


def bare_address(line):
    """The first address that is neither a link's target nor in <> nor code."""
    line = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", line)
    match = re.search(r"(?<![<(\w])(https?://[^\s)>]+)", re.sub(r"\]\([^)]*\)|^\[[^]]+\]: .*", "]", line))
    return match and match.group(1)


def check(lines):
    """(line number, what is wrong) of each break."""
    fence, titles, level, before = None, 0, 0, ""
    generated = False
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield number, "blanks at its end"
        if "\t" in line:
            yield number, "a tab"
        match = FENCE.match(line)
        if fence:
            if match and match.group(1).startswith(fence) and not match.group(2):
                fence = None
            before = "```"
            continue
        if re.match(r"<!-- (begin: |end )", line):
            generated = line.startswith("<!-- begin")
        if match:
            fence = match.group(1)
            if not match.group(2) and not generated:
                yield number, "a fence without a language (text, when it is none)"
            elif match.group(2) and match.group(2) not in LANGUAGES:
                yield number, f"a fence in {match.group(2)}, which is none of {', '.join(sorted(LANGUAGES))}"
            if before.strip() and not before.startswith(">"):
                yield number, "no blank line before the fence"
            continue
        if before == "```" and line.strip() and not line.startswith("<!--"):
            yield number, "no blank line after the fence"
        head = re.match(r"(#+) +\S", line)
        if head:
            depth = len(head.group(1))
            titles += depth == 1
            if depth == 1 and (titles > 1 or number != 1):
                yield number, "a page has one title, on its first line"
            if depth > level + 1 and level and not generated:
                yield number, f"a heading of level {depth} below one of level {level}"
            if before.strip() and before != "```":
                yield number, "no blank line before the heading"
            level = depth
        elif re.match(r"#+ +\S", before) and line.strip():
            yield number, "no blank line after the heading"
        if line.startswith("|") and before.strip() and not before.startswith("|"):
            yield number, "no blank line before the table"
        if before.startswith("|") and line.strip() and not line.startswith("|"):
            yield number, "no blank line after the table"
        if not line and not before and number > 1 and not generated:
            yield number, "two blank lines in a row"
        address = bare_address(line)
        if address and not generated:
            yield number, f"{address} is neither a link nor code"
        # A row, a link or a word that cannot be broken may be wider.
        if len(line) > WIDTH and not line.startswith("|") and " " in line[:WIDTH].strip() and not generated \
                and not re.fullmatch(r"(- |\d+\. )?!?\[[^\]]*\]\(\S*\)\S*", line.strip()):
            yield number, f"{len(line)} columns, at most {WIDTH}"
        if not generated:
            yield from ((number, text) for text in english.complaints(line))
        before = line
    if fence:
        yield len(lines), "a fence that nobody closes"
    if not titles:
        yield 1, "no title"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    names = sys.argv[2:]
    if not names:
        out = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "*.md"], stdout=subprocess.PIPE, check=True).stdout
        names = [name for name in out.decode().split("\0") if name and (root / name).is_file()]
    n_problems = 0
    for name in names:
        text = (root / name).read_text(encoding="utf-8")
        problems = [*check(text.splitlines()), *english.of_page(text.splitlines())]
        if not text.endswith("\n") or text.endswith("\n\n"):
            problems.append((text.count("\n"), "a page ends in one newline"))
        for number, what in problems:
            print(f"{name}:{number}: {what}")
        n_problems += len(problems)
    print(f"markdown: {len(names)} pages, {n_problems} problems")
    return 1 if n_problems else 0


if __name__ == "__main__":
    sys.exit(main())
