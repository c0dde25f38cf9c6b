#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer's tables: what Unicode 15.0 says of characters, and the names of HTML's entities.

usage: make-unicode.py [--from FOLDER]            writes unicode-tables.inc and entity-tables.inc beside this script
       make-unicode.py [--from FOLDER] --check    says whether they are what it would write; exits 77 without the data
FOLDER is /usr/share/unicode, Debian's package unicode-data 15.0. The names come from Python's html.entities. Both are
facts; LICENSE.unicode holds for those of Unicode.
"""
import html
import html.entities
import pathlib
import re
import sys

VERSION = "15.0.0"
HERE = pathlib.Path(__file__).resolve().parent
LETTER, NUMBER, SPACE, DECIMAL, CASED, IGNORABLE, UNSTABLE = (1 << i for i in range(7))
BLOCK = 128
N_CODES = 0x110000


class Data:
    """The files that are read, each into one list or table by code point."""

    def __init__(self, folder):
        self.folder = folder
        self.flags, self.ccc, self.lower, self.canonical, self.compatible = [0] * N_CODES, [0] * N_CODES, {}, {}, {}
        self.read_unicode_data()
        for code in self.codes_with("PropList.txt", "White_Space"):
            self.flags[code] |= SPACE
        for code in self.codes_with("DerivedCoreProperties.txt", "Cased"):
            self.flags[code] |= CASED
        for code in self.codes_with("DerivedCoreProperties.txt", "Case_Ignorable"):
            self.flags[code] |= IGNORABLE
        for value in ("N", "M"):
            for code in self.codes_with("DerivedNormalizationProps.txt", "NFC_QC", value):
                self.flags[code] |= UNSTABLE
        for code in range(N_CODES):
            if self.ccc[code]:
                self.flags[code] |= UNSTABLE
        self.excluded = set(self.codes_with("DerivedNormalizationProps.txt", "Full_Composition_Exclusion"))

    def lines(self, name):
        for line in (self.folder / name).read_text(encoding="utf-8").splitlines():
            line = line.partition("#")[0].strip()
            if line:
                yield [field.strip() for field in line.split(";")]

    def codes_with(self, name, *fields):
        for line in self.lines(name):
            if tuple(line[1 : 1 + len(fields)]) == fields:
                first, _, last = line[0].partition("..")
                yield from range(int(first, 16), int(last or first, 16) + 1)

    def read_unicode_data(self):
        first = None
        for line in self.lines("UnicodeData.txt"):
            code, name, category = int(line[0], 16), line[1], line[2]
            if name.endswith(", First>"):
                first = code
                continue
            for each in range(first if name.endswith(", Last>") else code, code + 1):
                self.flags[each] = {"L": LETTER, "N": NUMBER}.get(category[0], 0) | (DECIMAL if category == "Nd" else 0)
            self.ccc[code] = int(line[3])
            if line[13]:
                self.lower[code] = int(line[13], 16)
            if line[5]:
                kind = self.compatible if line[5].startswith("<") else self.canonical
                kind[code] = [int(word, 16) for word in re.sub(r"<\w+> ?", "", line[5]).split()]
            first = None

    def decomposed(self, code, compatible=False):
        to = self.canonical.get(code) or (self.compatible.get(code) if compatible else None)
        return [deep for part in to for deep in self.decomposed(part, compatible)] if to else [code]

    def composed(self):
        """(first, second, what they make), in the order of the first two."""
        return sorted((*to, code) for code, to in self.canonical.items() if len(to) == 2 and code not in self.excluded)

    def check_special_casing(self):
        """U+0130 is the one letter whose lower case is two characters everywhere; the code knows it."""
        special = [line[0] for line in self.lines("SpecialCasing.txt")
                   if len(line) == 5 and len(line[1].split()) != 1]
        if special != ["0130"]:
            sys.exit(f"make-unicode.py: lower-case mappings of several characters: {special}")


def array(kind, name, values, form="{}"):
    lines, line = [], ""
    for value in values:
        word = form.format(*value) if isinstance(value, (tuple, list)) else str(value)
        if len(line) + len(word) > 116:
            lines.append(line)
            line = ""
        line += word + ","
    return f"static const {kind} {name}[{len(values)}] = {{\n" + "\n".join(lines + [line]) + "\n};\n"


def head(what):
    return f"/* SPDX-License-Identifier: Apache-2.0 */\n/* {what}: written by make-unicode.py. */\n"


def unicode_tables(data):
    data.check_special_casing()
    records, blocks, stage, of_code = {}, {}, [], []
    for code in range(N_CODES):
        record = (data.flags[code], data.ccc[code], data.lower.get(code, code) - code)
        of_code.append(records.setdefault(record, len(records)))
    for at in range(0, N_CODES, BLOCK):
        stage.append(blocks.setdefault(tuple(of_code[at : at + BLOCK]), len(blocks)))
    pool, decompositions = [], []
    for code in sorted(data.canonical):
        to = data.decomposed(code)
        decompositions.append((code, len(pool), len(to)))
        pool += to
    wide = []
    for code in range(0xFF01, 0xFFF0):
        to = data.decomposed(code, compatible=True)
        if len(to) > 2 or max(to) > 0xFFFF:
            sys.exit(f"make-unicode.py: U+{code:04X} does not fit the table of widths")
        wide.append((to + [0])[:2])
    assert len(records) <= 256 and len(blocks) <= 256
    return (head(f"Facts of the Unicode Character Database {VERSION} (LICENSE.unicode)")
            + f"#define UNICODE_BLOCK {BLOCK}\n"
            + array("UnicodeRecord", "unicode_records", list(records), "{{{},{},{}}}")
            + array("uint8_t", "unicode_stage", stage)
            + array("uint8_t", "unicode_blocks", [each for block in blocks for each in block])
            + array("UnicodeDecomposition", "unicode_decompositions", decompositions, "{{{},{},{}}}")
            + array("uint32_t", "unicode_pool", pool)
            + array("UnicodePair", "unicode_pairs", data.composed(), "{{{},{},{}}}")
            + array("uint16_t", "unicode_wide", [part for pair in wide for part in pair]))


def entity_tables():
    """Rows of name, characters, and which of three spellings there are.

    1: "&name;", 2: "&name" without the end, 4: "&NAME;", which HTML does not know, but ftfy does.
    """
    rows = {}
    for name, text in html.entities.html5.items():
        row = rows.setdefault(name.rstrip(";"), [text, 0])
        assert row[0] == text
        row[1] |= 1 if name.endswith(";") else 2
        upper = "&" + name.upper()
        if name.endswith(";") and name == name.lower() and html.unescape(upper) == upper:
            row = rows.setdefault(name.upper().rstrip(";"), [text.upper(), 0])
            row[1] |= 4
    assert all(len(text) <= 3 and name.isascii() for name, (text, _) in rows.items())
    made = [(f'"{name}"', *([ord(c) for c in text] + [0, 0])[:3], kinds) for name, (text, kinds) in sorted(rows.items())]
    longest = max(len(name) for name, (_, kinds) in rows.items() if kinds & 2)
    return head("Names of HTML 5's entities") + f"#define ENTITY_OPEN_MAX {longest}\n" + array("Entity", "entities", made, "{{{},{{{},{},{}}},{}}}")


def main():
    words = sys.argv[1:]
    folder = pathlib.Path("/usr/share/unicode")
    if words[:1] == ["--from"]:
        folder, words = pathlib.Path(words[1]), words[2:]
    if words not in ([], ["--check"]):
        sys.exit(__doc__)
    readme = folder / "ReadMe.txt"
    if not readme.exists() or f"Version {VERSION}" not in readme.read_text(encoding="utf-8"):
        print(f"skipped: {folder} has no Unicode {VERSION}: install unicode-data")
        sys.exit(77)
    bad = 0
    for name, text in (("unicode-tables.inc", unicode_tables(Data(folder))), ("entity-tables.inc", entity_tables())):
        path = HERE / name
        if words:
            same = path.read_text(encoding="ascii") == text
            print(f"{name}: {'the same' if same else 'another than make-unicode.py writes'}")
            bad += not same
        else:
            path.write_text(text, encoding="ascii")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
