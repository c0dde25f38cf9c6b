# SPDX-License-Identifier: Apache-2.0
"""What a machine can say of the English of sources and pages; tidy.py and markdown.py print it."""
import re

# "there is no room", and "no" that belongs to an adverb, are English.
IS_NO = re.compile(r"(?<![Tt]here )\b(is|are|was|were) no (?!(more|longer|less|better|matter|other|wider|room|such)\b)([A-Za-z][\w'-]*)")
# A sentence whose subject is "what ..." or "who ...", or that begins with "Of ...": a question may.
HEADLESS = re.compile(r"(?:^|(?<=[.!?)] ))(What|Who|Whoever|Whose|Of)\b(?! course)[^.?!]*([.?!]|$)")
COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)


def complaints(line):
    found = IS_NO.search(line)
    if found:
        yield f'"{found[0]}": say "{found[1]} not"'


def headless(text):
    """Of the comments of a source in C: (line, complaint)."""
    for comment in COMMENT.finditer(text):
        begin = text.count("\n", 0, comment.start()) + 1
        lines = [re.sub(r"^\s*\* ?", "", line) if i else line for i, line in enumerate(comment[1].split("\n"))]
        paragraph, at = [], 0
        for i, line in enumerate([*lines, ""]):
            if line.strip():
                at = at if paragraph else i
                paragraph.append(line.strip())
                continue
            prose = re.sub(r"^[\w./@-]+ - ", "", " ".join(paragraph))
            for sentence in HEADLESS.finditer(prose):
                if sentence[2] != "?":
                    yield begin + at, f'a sentence that opens with "{sentence[1]}" ({sentence[0][:40].strip()}...): name its noun'
            paragraph = []
