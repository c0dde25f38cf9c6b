# SPDX-License-Identifier: Apache-2.0
"""Bugs that are planted without a person: the tokens of a C source are read, and each place is listed where an operator fits.

The order is that of the text, the sample is drawn with a seed: the same tree has the same bugs. What changes nothing that
anybody sees, a person marks in tests/mutants/equal.txt; which tests a folder has stands in tests/mutants/tests.txt.
"""
import os
import random
import re

import mutants_plant

TOKEN = re.compile(r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<directive>^[ \t]*\#(?:[^\n\\]|\\.)*)|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<word>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<mark><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[<>=!+\-*/%&|^]=|&&|\|\||[^\s\w])""", re.S | re.M | re.X)
QUIET = re.compile(r"assert|static_assert|log_\w+|LOG_\w+|PROBE\w*|printf|snprintf|fprintf|_cleanup_|sizeof|error_\w+")
KEYWORDS = {"if", "for", "while", "switch", "return", "case", "default", "goto", "do", "else", "sizeof", "typedef", "static", "const",
            "struct", "enum", "union", "extern", "unsigned", "int", "bool", "char", "void", "double", "float", "long", "break", "continue"}
SYMMETRIC = {"MIN", "MAX", "calloc", "memory_zeroed"}
COMPARES = {"strcmp", "strcasecmp", "strncmp", "memcmp"}  # symmetric where they are held against 0
PAIRS = {"<": ("<=", "off by one"), "<=": ("<", "off by one"), ">": (">=", "off by one"), ">=": (">", "off by one"),
         "==": ("!=", "condition negated"), "!=": ("==", "condition negated"), "&&": ("||", "condition negated"), "||": ("&&", "condition negated")}


class Tokens:
    """The tokens of a source that count, with what opens and closes."""

    def __init__(self, text):
        self.all = [match for match in TOKEN.finditer(text) if match.lastgroup not in ("comment", "directive")]
        self.close, stack = {}, []
        for i, token in enumerate(self.all):
            if token.group() in "([{":
                stack.append(i)
            elif token.group() in ")]}" and stack:
                self.close[stack.pop()] = i
        self.open = {end: begin for begin, end in self.close.items()}
        # Only bodies of functions: a brace at the outermost level behind ")" at depth 0.
        self.bodies = [(i, self.close[i]) for i in range(1, len(self.all))
                       if self[i] == "{" and i in self.close and self[i - 1] == ")" and self.column_0(text, i)]

    def column_0(self, text, i):
        at = self.all[i].start()
        return at == 0 or text[at - 1] == "\n"

    def __getitem__(self, i):
        return self.all[i].group()


def quiet_spans(tokens):
    """Where no bug is planted: the arguments of asserts, logs and texts."""
    for i in range(len(tokens.all) - 1):
        if tokens.all[i].lastgroup == "word" and QUIET.fullmatch(tokens[i]) and tokens[i + 1] == "(" and i + 1 in tokens.close:
            yield i, tokens.close[i + 1]


def arguments(tokens, opened):
    """Spans of tokens [first, last] between the commas of a call."""
    first, i, found = opened + 1, opened + 1, []
    while i < tokens.close[opened]:
        if i in tokens.close:
            i = tokens.close[i]
        elif tokens[i] == ",":
            found.append((first, i - 1))
            first = i + 1
        i += 1
    return [*found, (first, tokens.close[opened] - 1)]


def statement_end(tokens, i, end):
    while i < end and tokens[i] != ";":
        if tokens[i] in "{}":
            return None
        i = tokens.close.get(i, i) + 1
    return i if i < end else None


def is_statement(tokens, i, end):
    """A call, an assignment, a jump: what may be left out and still compiles."""
    if tokens[i] in ("break", "continue"):
        return True
    if tokens[i] == "(" or tokens[i] in ("*", "++", "--"):
        return True
    if tokens.all[i].lastgroup != "word" or tokens[i] in KEYWORDS or QUIET.fullmatch(tokens[i]):
        return False
    behind = tokens.all[i + 1]
    if behind.lastgroup == "word" or (behind.group() == "*" and tokens.all[i + 2].lastgroup == "word"):
        return False  # a declaration
    return behind.group() != ":"


def is_symmetric(tokens, i):
    """Whether the order of this call's arguments changes nothing."""
    if tokens[i] in COMPARES and tokens[i + 1] == "(":
        end = tokens.close[i + 1]
        return tokens[end + 1] in ("==", "!=") and tokens[end + 2] == "0"
    return tokens[i] in SYMMETRIC


def places(text):
    """[(begin, end, new text, operator)] in the order of the text."""
    tokens, found = Tokens(text), []
    quiet = set()
    for begin, end in quiet_spans(tokens):
        quiet.update(range(begin, end + 1))

    def span(first, last):
        return text[tokens.all[first].start():tokens.all[last].end()]

    for begin, end in tokens.bodies:
        for i in range(begin + 1, end):
            if i in quiet:
                continue
            word, at = tokens[i], tokens.all[i]
            if word in ("if", "while") and tokens[i + 1] == "(":
                last = tokens.close[i + 1]
                found.append((tokens.all[i + 1].start(), tokens.all[last].end(), f"(!{span(i + 1, last)})", "condition negated"))
            elif word in PAIRS:
                new, operator = PAIRS[word]
                found.append((at.start(), at.end(), new, operator))
            elif word in "+-" and tokens[i + 1] == "1" and (tokens.all[i - 1].lastgroup in ("word", "number") or tokens[i - 1] in ")]"):
                found.append((at.start(), tokens.all[i + 1].end(), "", "off by one"))
            if tokens[i - 1] in (";", "{", "}", "else") or (tokens[i - 1] == ")" and tokens[tokens.open[i - 1] - 1] in ("if", "for", "while")):
                last = statement_end(tokens, i, end) if is_statement(tokens, i, end) else None
                if last is not None:
                    found.append((at.start(), tokens.all[last].end(), ";", "statement left out"))
            if at.lastgroup == "word" and word not in KEYWORDS and not is_symmetric(tokens, i) and tokens[i + 1] == "(":
                spans = arguments(tokens, i + 1)
                for (a, b), (c, d) in zip(spans, spans[1:]):
                    if a <= b and c <= d and span(a, b) != span(c, d):
                        new = span(c, d) + text[tokens.all[b].end():tokens.all[c].start()] + span(a, b)
                        found.append((tokens.all[a].start(), tokens.all[d].end(), new, "arguments swapped"))
    return sorted(set(found))


def tests_of(root, name):
    """The tests of the longest folder in tests.txt that the file lies in."""
    best, tests = "", []
    for line in (root / "tests/mutants/tests.txt").read_text(encoding="utf-8").splitlines():
        folder, colon, value = line.partition(":")
        if colon and not line.startswith("#") and (name == folder or name.startswith(f"{folder}/")) and len(folder) > len(best):
            best, tests = folder, [test.strip() for test in value.split(",")]
    if not tests:
        raise mutants_plant.BadBug(f"tests/mutants/tests.txt has no tests for {name}")
    return tests


def one_line(text):
    """Code on one line, its comments left out: a comment may be written anew without a mark for it."""
    code = TOKEN.sub(lambda token: " " if token.lastgroup == "comment" else token.group(), text)
    return " ".join(re.sub(r"/\*.*", " ", code, flags=re.S).split())  # the last comment may end on a later line


def equal_ones(root):
    """{(file, line as it is, line as it would be)} that a person marked; the reason stands behind the last bar."""
    path = root / "tests/mutants/equal.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    marked = set()
    for i, line in enumerate(lines):
        if line.startswith("file "):
            if len(lines) < i + 4 or not all(lines[i + k].startswith(key) for k, key in enumerate(("file ", "was  ", "now  ", "why  "))):
                raise mutants_plant.BadBug(f"{path.name}:{i + 1}: four lines are needed: file, was, now, why")
            marked.add((line[5:], one_line(lines[i + 1][5:]), one_line(lines[i + 2][5:])))
    return marked


def stale_marks(root):
    """Marks of tests/mutants/equal.txt that fit no change of their file any more: the line is another one now."""
    marks = equal_ones(root)
    for name in sorted({file for file, _, _ in marks}):
        path = root / name
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        changes = {lines_around(text, begin, end, new) for begin, end, new, _ in places(text)}
        yield from sorted((file, was, now) for file, was, now in marks if file == name and (was, now) not in changes)


def lines_around(text, begin, end, new):
    """The lines that change, as they are and as they would be."""
    first = text.rfind("\n", 0, begin) + 1
    last = text.find("\n", end)
    return one_line(text[first:last]), one_line(text[first:begin] + new + text[end:last])


def bugs_of(root, names, sample, seed):
    """([Bug], how many are marked as equal) of these sources."""
    bugs, marked, equal = [], 0, equal_ones(root)
    for name in names:
        name = os.path.relpath(os.path.realpath(root / name), root)
        text = (root / name).read_text(encoding="utf-8")
        for begin, end, new, operator in places(text):
            was, now = lines_around(text, begin, end, new)
            if (name, was, now) in equal:
                marked += 1
                continue
            line = text.count("\n", 0, begin) + 1
            # The whole text is the old one: the place must not be looked for again.
            bug = mutants_plant.Bug("operators", f"{name}:{line}: {operator}: {now}", name, tests_of(root, name),
                                    [(text, text[:begin] + new + text[end:])], operator, strict=True)
            bug.at, bug.was, bug.now = (line, begin), was, now
            bugs.append(bug)
    if sample and sample < len(bugs):
        chosen = random.Random(seed).sample(range(len(bugs)), sample)
        bugs = [bugs[i] for i in sorted(chosen)]
    return bugs, marked
