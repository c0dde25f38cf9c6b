# SPDX-License-Identifier: Apache-2.0
"""What a machine can say of the English of sources and pages; tidy.py and markdown.py print it."""
import re

# "there is no room", and "no" that belongs to an adverb, are English.
IS_NO = re.compile(r"(?<![Tt]here )\b(is|are|was|were) no (?!(more|longer|less|better|matter|other|wider|room|such)\b)([A-Za-z][\w'-]*)")
# A sentence whose subject is "what ..." or "who ...", or that begins with "Of ...": a question may.
HEADLESS = re.compile(r"(?:^|(?<=[.!?)] ))(What|Who|Whoever|Whose|Of)\b(?! course)[^.?!]*([.?!]|$)")
COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
# The beginning of a paragraph within another: an item of a list, or of a quotation.
ITEM = re.compile(r"\s*(?:>\s*)*(?:[-*+]|\d+\.)\s+|\s*>\s*")
WORDS = 60


def complaints(line):
    found = IS_NO.search(line)
    if found:
        yield f'"{found[0]}": say "{found[1]} not"'


def headless(paragraph):
    """What opens a sentence of this paragraph without its noun."""
    for sentence in HEADLESS.finditer(paragraph):
        if sentence[2] != "?":
            yield f'a sentence that opens with "{sentence[1]}" ({sentence[0][:40].strip()}...): name its noun'


def paragraphs(lines):
    """(line number, text) of each paragraph, items apart, of a page or of a comment whose stars are gone."""
    text, first, fence = [], 1, False
    for number, line in enumerate([*lines, ""], 1):
        fence ^= line.lstrip().startswith(("```", "~~~"))
        other = fence or not line.strip() or line.lstrip().startswith(("#", "|", "```", "~~~", "<!--"))
        item = ITEM.match(line)
        if (other or item) and text:
            yield first, " ".join(text)
            text = []
        if not other:
            first = first if text else number
            text.append(line[item.end():].strip() if item else line.strip())


def of_source(text):
    """Of the comments of a source in C: (line, complaint)."""
    for comment in COMMENT.finditer(text):
        begin = text.count("\n", 0, comment.start())
        lines = [re.sub(r"^\s*\* ?", "", line) if i else line for i, line in enumerate(comment[1].split("\n"))]
        for at, paragraph in paragraphs(lines):
            for complaint in headless(re.sub(r"^[\w./@-]+ - ", "", paragraph)):
                yield begin + at, complaint


def of_page(lines):
    """Of the prose of a page: (line, complaint)."""
    for at, paragraph in paragraphs(lines):
        for complaint in headless(re.sub(r"^\*\*|^_", "", paragraph)):
            yield at, complaint
        words = len(re.sub(r"\]\([^)]*\)", "]", paragraph).split())
        if words > WORDS:
            yield at, f"a paragraph of {words} words, at most {WORDS}: make two of it, or a list"
