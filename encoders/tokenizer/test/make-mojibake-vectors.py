#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ftfy says of texts: writes mojibake-vectors.inc beside this script. It needs ftfy 6.3.1.

Verdicts: the shortest texts that ftfy takes for mojibake, no part of which it does, and ones that differ from these in one
character and that it leaves alone. Repairs: texts garbled in each of the ten encodings, and what fix_encoding() makes of them.
"""
import importlib.util
import pathlib
import random

import ftfy
from ftfy.badness import is_bad

HERE = pathlib.Path(__file__).resolve().parent
N_VERDICTS, N_REPAIRS = 700, 260
# Characters that contexts name one by one, beside one or two of each kind.
ORDINARY = " \t\na\u0436zAZ0_.,?!-@\u0301\u4e00"
BEGINS = ["\u00d7", "\u00d8", "\u00d9", "\u00e0", "\u221a", "\u2248", "\u201a\u00c4", "\u201a\u00e2", "\u201a\u00f3", "\u0432", "\u03b2\u20ac", "\u0101", "\u0152", "\u0153",
          "\u00c2", "\u00c3", "\u00ce", "\u00d0", "a\u00c3", "a \u00c2", ".\u00c2", "\u0412", "\u0413", "\u0420", "\u0421", "\u0392", "\u0393", "\u039e", "\u039f",
          "\u0413\u045e\u0412\u0402\u0412", "\u00d8\u00a0\u00d9", "\u00d9\u0178\u00d8"]


# Bytes that are read as Windows-1252, behind two that are an "e" with an accent; 1A is a byte that was lost.
BYTES = """C3 20 71 75 65 6C 65|C3 20 71 75 65 6C|C3 20 71 75 65 6C 61|C3 20 71 75 69 6C 6F|C3 20 73 20|C3 20 73|C3 20 20|C3 20 78|C2 20 78|C5 20 78|CE 20 78|D0 20 78|D9 20 78|C6 20 78
E2 20 82 78|E3 20 82 78|E1 20 82 78|E2 20 85 78|E2 85 20 78|E2 20 A0 78|E2 A0 20 78|E0 A4 20 78|E4 A4 20 78|F0 20 98 80|F0 9F 20 80|F0 9F 98 20|F0 20 20 80|F1 9F 98 20
E2 3F 93|E2 82 3F|E2 3F 3F|E2 1A 3F|E2 3F 1A|E2 1A 1A|E2 1A 93|C3 3F|C2 3F|C4 3F|C4 1A|DF 1A|F0 3F 98 80|F0 9F 1A 80|F0 9F 98 3F|F4 1A 1A 1A|F0 3F 98 3F|1A|78 1A|F5 1A
ED A0 3F ED B0 80|ED A0 1A ED B0 3F|ED A0 80 ED B0 1A|ED A0 3F ED B0 3F|ED A0 BD ED B8 80|ED A0 BD ED A0 BD|ED 95 9C|ED A0 BD|ED A0 BD ED B8|C0 AF|F4 90 80 80"""
TEXTS = ["\u00e2\u20ac\u0153\x1a", "\u00c3\u00a9\x1a", "\u221a\u00a9 \u2013 x", "\u221a\u00a9 \u2013 \u20ac", "\u4e00\u00c3\u00a9", "\u0431\u00c3\u00a9\u4e00\u00e2\u20ac\u0153",
         "\u4e00\u00e5\u00ad\u2014\u00c3\u0192\u00c2\u00a9", "\u4e00\u00a9\u00c3\u00a9", "\u4e00 \u00c3 x", "\u4e00\u00f0\u0178\u02dc\u20ac", "\u0081\u4e00"]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verdicts(draw, signs):
    """Drawn texts, one for each pattern of kinds and for each beginning."""
    make = load(HERE.parent / "make-mojibake.py")

    def shape(text):
        kinds = ["+".join(k for k, has in make.kinds_of(c).items() if has and not k.startswith(("FIRST", "NEXT"))) if ord(c) >= 0x80 else
                 "A" if c.isalpha() else c for c in text]
        return tuple(kinds)

    found, rows = set(), []
    for _ in range(400000):
        n = draw.choice([1, 2, 2, 3, 3, 4])
        text = "".join(draw.choice(signs) if draw.random() < 0.75 else draw.choice(ORDINARY) for _ in range(n))
        begin = draw.choice(BEGINS) if draw.random() < 0.5 else ""
        text = begin + text[: draw.choice([1, 1, 2, 3])]
        if not is_bad(text) or is_bad(text[1:]) or is_bad(text[:-1]):
            continue
        key = (begin, shape(text)) if begin else shape(text)
        if key in found:
            continue
        found.add(key)
        rows.append((text, True))
        at = draw.randrange(len(text))
        other = text[:at] + draw.choice(signs + list(ORDINARY)) + text[at + 1 :]
        if not is_bad(other):
            rows.append((other, False))
    draw.shuffle(rows)
    # The first of these has a part that is bad where a text begins.
    whole = [(text, is_bad(text)) for text in (".\u00c2 x", "x;\u00c2 x", "x \u00c2x", "\u00c2", "")]
    return sorted(rows[: N_VERDICTS - len(whole)] + whole)


def repairs(draw, compare):
    rows, counts = {}, {}
    while len(rows) < N_REPAIRS:
        text = (compare.draw_mojibake if draw.random() < 0.9 else compare.draw_signs)(draw)
        fixed, steps = ftfy.fix_encoding_and_explain(text)
        key = tuple(sorted({(step.action, step.parameter) for step in steps if step.parameter != "utf-8"}))
        if 0 < len(text) <= 30 and "\0" not in text + fixed and counts.get(key, 0) < 12:
            counts[key] = counts.get(key, 0) + 1
            rows[text] = fixed
    for spelled in BYTES.replace("\n", "|").split("|"):
        data = bytes.fromhex("C3 A9" + spelled)
        text = "".join("\ufffd" if byte == 0x1A else compare.read_wrongly([byte], "cp1252", "") for byte in data)
        rows[text] = ftfy.fix_encoding(text)
    rows.update((text, ftfy.fix_encoding(text)) for text in TEXTS)
    return sorted(rows.items())


def literal(text):
    """A C string, in which no digit is read as a part of the escape before it."""
    return "".join(chr(b) if 0x20 <= b < 0x7F and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())


def main():
    draw = random.Random(1)
    compare = load(HERE.parents[2] / "tests/interop/compare-tokenizer.py")
    signs = list(compare.SIGNS)
    out = ["/* SPDX-License-Identifier: Apache-2.0 */", "/* What ftfy 6.3.1 says of texts: written by make-mojibake-vectors.py. */",
           "static const Verdict verdicts[] = {"]
    out += [f'{{"{literal(text)}", {str(bad).lower()}}},' for text, bad in verdicts(draw, signs)]
    out += ["};", "static const Repair repairs[] = {"]
    out += [f'{{"{literal(text)}",\n "{literal(fixed)}"}},' for text, fixed in repairs(draw, compare)]
    (HERE / "mojibake-vectors.inc").write_text("\n".join(out + ["};"]) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
