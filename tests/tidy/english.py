# SPDX-License-Identifier: Apache-2.0
"""What a machine can say of the English of a line, in sources and in pages. Prints nothing; tidy.py and markdown.py ask."""
import re

# "there is no room", and "no" that belongs to an adverb, are English.
IS_NO = re.compile(r"(?<![Tt]here )\b(is|are|was|were) no (?!(more|longer|less|better|matter|other|wider|room|such)\b)([A-Za-z][\w'-]*)")


def complaints(line):
    found = IS_NO.search(line)
    if found:
        yield f'"{found[0]}": say "{found[1]} not"'
