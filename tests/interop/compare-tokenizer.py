#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our token ids with open_clip's own tokenizer file and with transformers, over captions drawn from a seed.

usage: compare-tokenizer.py --bin FOLDER [--captions N] [--seed N]
The captions: openclipart's, words in every spacing, every Unicode block, entities, special texts, quotes, ligatures,
widths, escapes, mojibake, the characters of mojibake in any order; all of code points that Unicode 14 has assigned. Beyond
the N there are some of code points that it has not. Prints a row for each kind and rules: how many captions,
how many of them ftfy repairs, and how many differ because of a character that the others' tables of Unicode do not know or
only know by now, because ftfy repaired mojibake and we did not or otherwise, and for another reason, with an example. Exits
1 if there is one of the last, or more than one of a thousand of the ones before.
Needs the packages of requirements-tokenizer.txt, open_clip_torch without what it depends on (only its tokenizer is
used), and unicode-data. tests/interop/tokenizer gets them.
"""
import argparse
import gzip
import html
import html.entities
import importlib.util
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
MERGES = ROOT / "encoders/tokenizer/bpe_simple_vocab_16e6.txt.gz"
WORDS = """a the cat Photo of MOUNTAIN don't I'll they've it's you're rock'n'roll 1984 3.14 50% $20 vector clip-art
 red/blue foo_bar supercalifragilisticexpialidocious résumé naïve Straße ΣΑΣ ΟΔΟΣ İstanbul ıslak 日本語 テスト 한국어
 español русский العربية हिन्दी ไทย 😀 👍🏽 👩‍👩‍👧 ½ ² Ⅷ №5 e.g. C++ #tag @user http://x.y/z?q=1 (big) [small] {odd} ... !!! ?!
 <b> </b> <end_of_text> <start_of_text> <|endoftext|> <|startoftext|> <END_OF_TEXT> 'S 'ſ ﬁne ﬂow ﬀ ﬆ ŉ ĳ ＷＩＤＥ ｶﾞ ｱ ￣ “curly” ‘q’ ʼn""".split()
SPACES = [" ", " ", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085", "\u200b", "\x0b", "\x1c", "\x1f", ""]


AGES = pathlib.Path("/usr/share/unicode/DerivedAge.txt")
# Python 3.11 has Unicode 14; the crate that normalises for transformers' tokenizers has 9.
KNOWN = {"open_clip": 14, "diffusers": 9}


def code_ages():
    """The version of Unicode that assigned each code point; 99 for those that are not."""
    ages = bytearray([99]) * 0x110000
    for line in AGES.read_text(encoding="utf-8").splitlines():
        codes, _, age = line.partition("#")[0].partition(";")
        if age:
            first, _, last = codes.strip().partition("..")
            for code in range(int(first, 16), int(last or first, 16) + 1):
                ages[code] = int(float(age))
    return ages


CODE_AGES = code_ages() if AGES.exists() else None


def codes_from(first, n, known=True):
    """Of n code points those that Unicode 14 has assigned, or those that it has not."""
    return [c for c in range(first, min(first + n, 0x110000)) if (CODE_AGES[c] <= 14) == known and not 0xD800 <= c < 0xE000]


def draw_words(draw):
    return "".join(draw.choice(WORDS) + draw.choice(SPACES) for _ in range(draw.randint(0, 14)))


def draw_blocks(draw, known=True):
    """Code points that lie together, and words between them."""
    codes = []
    while not codes:
        first = draw.choice([draw.randrange(0x0, 0x3000), draw.randrange(0x3000, 0x11000), draw.randrange(0x10000, 0x32000), draw.randrange(0xE0000, 0xE0200)])
        codes = codes_from(first, 48, known)
    out = ""
    for _ in range(draw.randint(1, 20)):
        out += chr(draw.choice(codes)) if draw.random() < 0.8 else draw.choice(["a", " ", "B", "'s", "1", "\u0301"])
    return out


def draw_newer(draw):
    """Code points that Unicode 14 has not: who reads them knows more or fewer of them as letters."""
    return draw_blocks(draw, known=False)


def draw_marks(draw):
    bases = "aeiouAEIOUsSdDοΣ가각ㄱ각<>=" + "\u1e9b\u0344\u212b\u2126\u1100\u1161"
    marks = "\u0301\u0300\u0323\u0307\u0338\u0327\u05b0\u0345\u3099\u0308\u031b\u1161\u11a8"
    return "".join(draw.choice(bases) + "".join(draw.choice(marks) for _ in range(draw.randint(0, 5))) for _ in range(draw.randint(1, 10)))


def draw_entities(draw):
    names = list(html.entities.html5)
    out = ""
    for _ in range(draw.randint(1, 8)):
        name = draw.choice(names)
        out += draw.choice([f"&{name}", f"&{name.upper()}", f"&amp;{name}", f"&#{draw.choice([0, 9, 38, 59, 60, 65, 128, 133, 146, 0xD800, 0xE9, 0x1F600, 0x110000, 11, 127])};",
                            f"&#x{draw.choice(codes_from(draw.randrange(0x2FC0), 48) or [65]):x};", "&amp;amp;lt;", "&lt", "&notit;", "&#12a;", "&#xg;", "&", "&;", "<", "&nbsp", "&ampx"])
        out += draw.choice(["", " ", "x", ";", "\n"])
    return out


def draw_controls(draw):
    parts = ["\x1b[31m", "\x1b[1;2H", "\x1b[", "\x1b", "\x00", "\x07", "\x7f", "\ufeff", "\u206a", "\ufff9", "\ufffc", "\u200d", "\u00ad", "red", "text ", "\r", "\n", "7"]
    return "".join(draw.choice(parts) for _ in range(draw.randint(1, 12)))


TEXTS = ["café", "schön", "“quote”", "it’s", "naïve", "żółć", "привет мир", "日本語", "£5", "déjà vu", "à la carte", "às vezes", "Š", "España", "…", "—", "œuvre",
         "ΕΛΛΗΝΙΚΑ", "καλημέρα", "العربية", "עברית", "हिन्दी", "ไทย", "한국어", "😀👍🏽", "🇫🇷", "½ ²", "°C", "©®™", "►", "«ok»", "lietuvių", "latviešu", "ğüşiöç", "Ærø", "ÀÁÂ",
         "€20", "№ 5", "ﬁne", "\u00a0", "x\u00a0y", "plain words", "a", "│┌┐", "√∂", "’", "‘", "–"]
ENCODINGS = ["latin-1", "cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1257", "iso-8859-2", "mac_roman", "cp437"]


def read_wrongly(data, encoding, lost):
    """Bytes in the encoding; those that it has not are themselves, or what is lost."""
    out = ""
    for byte in data:
        try:
            out += bytes([byte]).decode(encoding)
        except UnicodeDecodeError:
            out += lost or chr(byte)
    return out


def garble(draw, text):
    data = text.encode("utf-8", "surrogatepass")
    if draw.random() < 0.05:  # as two surrogates of three bytes each
        utf16 = text.encode("utf-16-le")
        data = "".join(chr(utf16[i] | utf16[i + 1] << 8) for i in range(0, len(utf16), 2)).encode("utf-8", "surrogatepass")
    if draw.random() < 0.05 and data:
        at = draw.randrange(len(data))
        data = data[:at] + data[at + 1 :]
    text = read_wrongly(data, draw.choice(ENCODINGS[: draw.choice([2, 10])]), draw.choice(["", "", "\ufffd"]))
    for rare, before, after in ((0.2, "\u00a0", " "), (0.05, "\ufffd", "?"), (0.05, "\u0085", "..."), (0.05, "\u00ad", "")):
        if draw.random() < rare:
            text = text.replace(before, after)
    return text


def draw_mojibake(draw):
    """Texts whose UTF-8 was read as another encoding: all of it or parts, once to three times, with losses."""
    parts = []
    for _ in range(draw.randint(1, 5)):
        text = draw.choice(TEXTS) if draw.random() < 0.8 else "".join(chr(draw.randrange(0xA0, draw.choice([0x180, 0x600, 0x3000]))) for _ in range(draw.randint(1, 4)))
        parts.append(garble(draw, text) if draw.random() < 0.5 else text)
    text = draw.choice([" ", " ", "", ", "]).join(parts)
    for _ in range(draw.choice([0, 0, 1, 1, 1, 2])):
        text = garble(draw, text)
    return text


SIGNS = sorted({c for encoding in ENCODINGS for byte in range(0x80, 0x100) for c in read_wrongly([byte], encoding, "")} | {"\ufffd"})


def draw_signs(draw):
    """Characters of mojibake in any order, among letters: nobody wrote these, and each is a question for ftfy's judgement."""
    encoding, out = draw.choice(ENCODINGS), ""
    for _ in range(draw.randint(1, 6)):
        sign = read_wrongly([draw.randrange(0x80, 0x100)], encoding, "") if draw.random() < 0.7 else draw.choice(SIGNS)
        out += draw.choice([sign, sign, sign, sign + sign, "a" + sign, sign + " ", " " + sign, sign + "B", "1" + sign, sign + "?", "a " + sign, sign + ",", "\x1a", ""])
    return out


KINDS = {"words": draw_words, "blocks": draw_blocks, "marks": draw_marks, "entities": draw_entities, "controls": draw_controls,
         "mojibake": draw_mojibake, "signs": draw_signs}
MORE = {"newer": draw_newer}  # beyond those that are counted
SVGS = pathlib.Path("/usr/share/openclipart/svg")


def openclipart():
    """Titles and keywords, as their files have them."""
    captions = []
    for path in sorted(SVGS.rglob("*.svg")):
        text = path.read_text(encoding="utf-8", errors="replace")
        words = re.findall(r"<dc:title>([^<]+)<|<rdf:li>([^<]+)<", text)
        captions.append(", ".join(title or keyword for title, keyword in words))
    return captions


def wheel_tokenizer():
    """open_clip's tokenizer.py alone: the package wants PyTorch, which it uses for an array."""
    import ftfy
    spec = importlib.util.find_spec("open_clip")
    torch = sys.modules["torch"] = types.ModuleType("torch")
    torch.Tensor = torch.LongTensor = object
    path = pathlib.Path(spec.submodule_search_locations[0]) / "tokenizer.py"
    spec = importlib.util.spec_from_file_location("open_clip_tokenizer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    del sys.modules["torch"]
    tokenizer, fix = module.SimpleTokenizer(), ftfy.fix_text

    def encode(text, repair=True):
        ftfy.fix_text = fix if repair else lambda each: fix(each, fix_encoding=False)
        return [49406, *tokenizer.encode(text)[:75], 49407]

    return encode


def diffusers_tokenizer(folder):
    """transformers' tokenizer of the files that Stable Diffusion 2 has."""
    byte_order = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters = [chr(b) for b in byte_order] + [chr(256 + i) for i in range(256 - len(byte_order))]
    merges = gzip.open(MERGES).read().decode().split("\n")[1:48895]
    tokens = [*characters, *(c + "</w>" for c in characters), *(line.replace(" ", "") for line in merges), "<|startoftext|>", "<|endoftext|>"]
    whole = {"lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    begin, end = {"content": "<|startoftext|>", **whole}, {"content": "<|endoftext|>", **whole}
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}, ensure_ascii=False))
    (folder / "special_tokens_map.json").write_text(json.dumps({"bos_token": begin, "eos_token": end, "pad_token": "!", "unk_token": end}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "add_prefix_space": False, "bos_token": {"__type": "AddedToken", **begin}, "eos_token": {"__type": "AddedToken", **end},
        "unk_token": {"__type": "AddedToken", **end}, "pad_token": "!", "do_lower_case": True, "errors": "replace",
        "model_max_length": 77, "tokenizer_class": "CLIPTokenizer"}))
    from transformers import CLIPTokenizer
    tokenizer = CLIPTokenizer.from_pretrained(folder)
    return lambda text: tokenizer(text, truncation=True, max_length=77)["input_ids"]


def ours(binary, path, rules, captions):
    """Runs the program that prints a line of ids for each caption, which NULs would end: they are left to the unit test."""
    out = subprocess.run([binary, path, rules, "77"], input="\0".join(captions).encode() + b"\0", capture_output=True, check=True)
    return [[int(word) for word in line.split()] for line in out.stdout.decode().splitlines()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--captions", type=int, default=200000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    draw = random.Random(args.seed)
    captions = openclipart()[: args.captions // 8]
    if not captions:
        print(f"openclipart: left out: {SVGS} is not there (openclipart-svg)")
    kinds = ["openclipart"] * len(captions)
    kinds += [list(KINDS)[i % len(KINDS)] for i in range(args.captions - len(kinds))]
    kinds += [kind for kind in MORE for _ in range(args.captions // 100)]
    captions += [{**KINDS, **MORE}[kind](draw).replace("\0", "") for kind in kinds[len(captions) :]]
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        import ftfy
        fix = ftfy.fix_text
        theirs = {"open_clip": wheel_tokenizer(), "diffusers": diffusers_tokenizer(pathlib.Path(folder))}
        for rules, tokenize in theirs.items():
            path = MERGES if rules == "open_clip" else folder
            rows = {kind: {"captions": 0, "repaired": 0, "mojibake": 0, "newer": 0, "other": 0, "example": None} for kind in ["openclipart", *KINDS, *MORE]}
            for kind, text, ids in zip(kinds, captions, ours(args.bin / "token-ids", path, rules, captions), strict=True):
                row = rows[kind]
                row["captions"] += 1
                right = tokenize(text)
                repaired = rules == "open_clip" and tokenize(text, repair=False) != right
                row["repaired"] += repaired
                if ids == right:
                    continue
                newer = any(CODE_AGES[ord(c)] > KNOWN[rules] for c in text + (html.unescape(html.unescape(fix(text))) if rules == "open_clip" else ""))
                row["newer" if newer else "mojibake" if repaired or rules == "open_clip" and ids == tokenize(text, repair=False) else "other"] += 1
                if not newer:
                    row["example"] = row["example"] or (text, ids, right)
            rows["all"] = {key: sum(row[key] for kind, row in rows.items() if kind not in MORE) for key in ("captions", "repaired", "mojibake", "newer", "other")}
            for kind, row in rows.items():
                print(f"{rules:10} {kind:11} {row['captions']:6} captions, {row['repaired']:6} repaired by ftfy; differ: {row['newer']} newer than "
                      f"Unicode {KNOWN[rules]}, {row['mojibake']} mojibake, {row['other']} other")
                if row.get("example"):
                    print("    {!a}\n    ours   {}\n    theirs {}".format(*row["example"]))
            row = rows["all"]
            equal = row["captions"] - sum(row[key] for key in (["newer"] if rules == "open_clip" else []) + ["mojibake", "other"])
            bad |= row["other"] > 0 or equal < 0.999 * row["captions"]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
