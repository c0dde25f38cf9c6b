#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The characters of mojibake: which bytes they are in ten encodings, and what kind of character each is.

usage: make-mojibake.py            writes mojibake-tables.inc beside this script
       make-mojibake.py --check    says whether it is what it would write

The bytes are Python's codecs. The kinds are those that ftfy describes (Robyn Speer, "Heuristics for detecting mojibake"),
told here by Unicode's names and categories where that is possible, by lists of characters where it is not.
"""
import pathlib
import sys
import unicodedata

HERE = pathlib.Path(__file__).resolve().parent
# In the order in which they are tried. Windows' holes are the control characters of the same number.
ENCODINGS = ["latin-1", "cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1257", "iso-8859-2", "mac_roman", "cp437"]
# Those that give a byte of UTF-8 a letter of Western kind; the last two put it among signs and boxes.
ALIKE = ENCODINGS[:8]
KINDS = ["COMMON", "C1", "BAD", "LAW", "CURRENCY", "OPENING", "CLOSING", "NUMERIC", "FACE", "UPPER_ACCENTED", "LOWER_ACCENTED",
         "UPPER", "LOWER", "BOX", "FIRST_OF_2", "FIRST_OF_3", "FIRST_OF_4", "NEXT", "NEXT_ONLY"]

COMMON = "\u00a0\u00ad\u00b4\u00b7\u2013\u2014\u2015\u2019\u2026"
BAD = "\u00a4\u00a6\u00a8\u00aa\u00ac\u00af\u00b8\u00ba\u0192\u02c6\u02c7\u02d8\u02db\u02dc\u2020\u2021\u2030\u2310\u25ca\ufffd"
LAW = "\u00a7\u00b6"
OPENING = "\u00a1\u00a9\u00bf\u0384\u0385\u2022\uf8ff"  # and initial quotes
CLOSING = "\u00ae\u02dd\u2122"  # and final quotes
NUMERIC = "\u00b5\u2116"  # and mathematical signs, numbers above the line, fractions
NO_NUMERIC = "\u2219\u2320\u2321"
# Letters of which people make faces stand beside anything. One is as common in mojibake as in faces.
FACES = "\u00b0\u014c\u0150\u016a\u0172"
BOTH = "\u00d8\u00dc\u00fc"
NO_ACCENTED = "\u00ff\u0131\u0156\u0157"  # ftfy's list lacks them
# Letters without accents as far as this goes: at the end of words they stand beside anything.
UPPER = "\u00de" + "".join(map(chr, [0x386, *range(0x388, 0x38B), 0x38C, 0x38E, 0x38F, *range(0x391, 0x3AC), *range(0x401, 0x430)]))
LOWER = "".join(map(chr, [*range(0x3AC, 0x3CA), *range(0x430, 0x460)]))
# Quotes, dashes and dots stand for themselves beside mojibake too.
SELVES = "\u2013\u2014\u2015\u2018\u2019\u201a\u201c\u201d\u201e\u2022\u2026 "


def decode(encoding, byte):
    try:
        return bytes([byte]).decode(encoding)
    except UnicodeDecodeError:
        return chr(byte)


def in_bytes(encodings, *spans):
    return {decode(encoding, byte) for encoding in encodings for first, last in spans for byte in range(first, last + 1)}


ANY = in_bytes(ENCODINGS, (0x80, 0xFF))
# What stands at a byte that UTF-8 uses; those above F0 begin what hardly anybody writes.
USED = in_bytes(ENCODINGS, (0x80, 0xBF), (0xC2, 0xF0)) | in_bytes(["latin-1", "mac_roman", "cp437"], (0xF1, 0xFC))
SPANS = {"FIRST_OF_2": in_bytes(ALIKE, (0xC2, 0xDF)), "FIRST_OF_3": in_bytes(ALIKE, (0xE0, 0xEF)),
         "FIRST_OF_4": in_bytes(ALIKE, (0xF0, 0xF0), (0xF3, 0xF3)), "NEXT": in_bytes(ALIKE, (0x80, 0xBF))}


def kinds_of(c):
    category, name, code = unicodedata.category(c), unicodedata.name(c, ""), ord(c)
    face = c in FACES or (0xD2 <= code <= 0xFC and c not in "\u00d7\u00d8\u00f7" and name.split(" WITH ")[0][-1] in "OU")
    accented = ("LATIN" in name and c in USED and c not in BAD + UPPER + NO_ACCENTED) or "GHE WITH UPTURN" in name
    accented = accented and (not face or c in BOTH)
    return {
        "COMMON": c in COMMON, "C1": 0x80 <= code <= 0x9F, "BAD": c in BAD, "LAW": c in LAW,
        "CURRENCY": category == "Sc" and c not in BAD,
        "OPENING": c in OPENING or category in ("Pi", "Ps"),
        "CLOSING": c in CLOSING or (category == "Pf" and c not in COMMON),
        "NUMERIC": c in NUMERIC or (category in ("Sm", "No") and c not in BAD and c not in NO_NUMERIC),
        "FACE": face, "UPPER_ACCENTED": accented and category == "Lu", "LOWER_ACCENTED": accented and category == "Ll",
        "UPPER": c in UPPER, "LOWER": c in LOWER, "BOX": 0x2500 < code < 0x25A0 and c in USED,
        **{kind: c in span for kind, span in SPANS.items()},
        "NEXT_ONLY": c in SPANS["NEXT"] and c not in SELVES}


def byte_of(encoding, c):
    if c == "\ufffd" and encoding.startswith("cp125"):
        return 0x1A  # a byte that was lost
    return next((byte for byte in range(0x80, 0x100) if decode(encoding, byte) == c), 0)


def table():
    rows, pages, index = ["{0, 0, {0}},"], [0] * 1024, [[0] * 64]
    for c in sorted(ANY | set(BAD + UPPER + LOWER)):
        kinds, encoded = kinds_of(c), [byte_of(encoding, c) for encoding in ENCODINGS]
        assert set(kinds) == set(KINDS)
        page = ord(c) // 64
        if not pages[page]:
            pages[page] = len(index)
            index.append([0] * 64)
        index[pages[page]][ord(c) % 64] = len(rows)
        mask = " | ".join(f"MOJIBAKE_{kind}" for kind in KINDS if kinds[kind]) or "0"
        rows.append(f"{{{mask}, {sum(1 << i for i, byte in enumerate(encoded) if byte)}, {{{', '.join(map(str, encoded))}}}}},")
    out = ["/* SPDX-License-Identifier: Apache-2.0 */", "/* Characters of mojibake: written by make-mojibake.py. */"]
    out += [f"static const MojibakeSign mojibake_signs[{len(rows)}] = {{", *rows, "};"]
    for kind, name, values in (("uint8_t", "mojibake_pages", pages), ("uint16_t", "mojibake_index", sum(index, []))):
        out += [f"static const {kind} {name}[{len(values)}] = {{"]
        out += [",".join(map(str, values[i : i + 32])) + "," for i in range(0, len(values), 32)] + ["};"]
    return "\n".join(out) + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    path, text = HERE / "mojibake-tables.inc", table()
    if not sys.argv[1:]:
        path.write_text(text, encoding="ascii")
        return 0
    same = path.read_text(encoding="ascii") == text
    print(f"{path.name}: {'the same' if same else 'another than make-mojibake.py writes'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
