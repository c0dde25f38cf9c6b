#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dictionaries of the fuzzers: the words of a format, as libFuzzer takes them, so that it does not have to guess "submission".

usage: dictionaries.py FOLDER      writes FOLDER/NAME.dict for each fuzz-NAME that a dictionary helps
       dictionaries.py --check     says which sources have no words any more, and which seeds README.md does not explain
A dictionary is taken from the string literals of the sources that read the format, and from the names of settings, so that it
knows a field on the day that the code does.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
JSON = ['{"', '":', '","', '":{"', '":[', '],', "null", "true", "false", "0", "-1", "9223372036854775807", "1e308", "\\u0000", "{}", "[]"]
XML = ["<", "</", "/>", ">", "<?xml version=\"1.0\" encoding=\"UTF-8\"?>", "<!DOCTYPE", "<![CDATA[", "]]>", "&amp;", "&#0;"]
INI = ["[default]\n", "[profile ", "=", "\n", "# "]
HEADERS = [": ", "\r\n", "HTTP/1.1 200 OK\r\n", "bytes 0-", "/*"]

# fuzz-NAME: (words of the form, sources of the words of the format)
FORMATS = {
    "records": (JSON, ["cluster/records.c"]),
    "journal": (JSON, ["controller/journal/*.c", "cluster/records.c", "cluster/keys.c"]),
    "channel": (JSON, ["protocol/channel.c", "protocol/train-stage.c"]),
    "job": (JSON, ["protocol/job.c", "protocol/job-exec.c", "protocol/paths.c"]),
    "job-edit": (JSON + ["=", ".", "[0]"], ["protocol/job.c"]),
    "exec-report": (["=", "\n"], ["exec/words.c"]),
    "evidence": (["\n", "{\"message\": ", "Current thread 0x", "(most recent call first):\n", "  File \"", "\", line 3 in "],
                 ["exec/evidence.c"]),
    "recipe": (JSON, ["protocol/recipe.c"]),
    "encoder-facts": (JSON, ["data/encoder-facts.c"]),
    "encode-report": (JSON, ["prep/encode/report.c"]),
    "unet-config": (JSON, ["protocol/unet-config.c"]),
    "manifest": (JSON, ["manifest/*.c"]),
    "owner": (JSON, ["protocol/owner.c"]),
    "safetensors": (JSON, ["store/safetensors.c"]),
    "model-config": (JSON, ["encoders/networks/*-config.c"]),
    "cuda-plans": (JSON, ["kernels/cuda/plans/plans.c"]),
    "mds-index": (JSON, ["data/mds/*.c"]),
    "daemon-config": (JSON, ["daemon/config/*.c"]),
    "contexts": (JSON, ["ctl/context/context.c"]),
    "node-report": (JSON, ["ctl/doctor/node-report.c"]),
    "controller-config": (JSON, ["controller/config/config.c"]),
    "alerts": (JSON, ["controller/alerting/*.c"]),
    "kernel-log": (JSON, ["health/*.c"]),
    "s3-credentials": (JSON + XML, ["store/s3/credentials/*.c"]),
    "s3-reply": (XML, ["store/s3/protocol/reply.c"]),
    "s3-headers": (HEADERS, ["store/s3/protocol/reply-headers.c"]),
    "s3-config": (INI, ["store/s3/settings/*.c"]),
    "merges": (["#version: 0.2\n", "\"bpe_simple_vocab_16e6.txt", "</w>\n", "{\"", "\": "], ["encoders/tokenizer/bpe-read.c"]),
    "caption": (["&amp;", "&#x", "&#", "&eacute;", ";", "\x1b[", "'s", "'ll", "\u0301", "\u0323", "\u1161", "\u03a3", "\ufb01",
                 "\u00c3", "\u00a9", "\u00e2\u20ac", "\u0153", "\ufffd", "\u221a", "\u0432\u0402", "\u00a0", "\u0192", "\u00ed"],
                ["encoders/tokenizer/tokenizer.c"]),
    "arguments": (["\n", "--", "=", "-f", "-o", "json"], ["ctl/*.c", "ctl/*/*.c"]),
}
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
SETTING = re.compile(r"\bSETTING\(\w+, (\w+)")
WORD = re.compile(r"[A-Za-z0-9_./:@<>=-]{2,40}")
OPTION = re.compile(r"--[a-z][a-z-]+")


def words_of(path):
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
    text = re.sub(r"^#include.*$", "", text, flags=re.M)
    words = set(SETTING.findall(text))
    for literal in LITERAL.findall(text):
        if WORD.fullmatch(literal):
            words.add(literal)
        words |= set(OPTION.findall(literal))
    return words


def quoted(word):
    """As libFuzzer reads it: printable ASCII, \\\\ and \\", the other bytes in hex."""
    made = "".join("\\" + chr(b) if chr(b) in '"\\' else chr(b) if 0x20 <= b < 0x7F else f"\\x{b:02x}" for b in word.encode())
    return f'"{made}"'


def dictionaries():
    """(name, its words, sources without any) of each."""
    for name, (form, sources) in FORMATS.items():
        words, barren = set(), []
        for source in sources:
            found = set().union(*(words_of(path) for path in sorted(ROOT.glob(source))
                                  if path.parent.name != "test"))
            barren += [] if len(found) >= 3 else [source]
            words |= found
        if form == XML:  # paths of elements
            words = {f"<{element}>" for word in words for element in word.split("/") if element.isalpha()} | \
                {word for word in words if "/" not in word}
        yield name, form + sorted(words - set(form)), barren


def unexplained():
    """Seeds without a row in README.md, and rows without a seed."""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", (ROOT / "tests/corpus/README.md").read_text(encoding="utf-8"), re.M)
    told = {f"{folder}/{seed}" for folder, seeds in rows for seed in re.findall(r"`([^`]+)`", seeds)}
    there = {f"{path.parent.name}/{path.name}" for path in (ROOT / "tests/corpus").glob("*/*") if path.is_file()}
    return sorted(there ^ told)


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    bad = 0
    for name, words, barren in dictionaries():
        for source in barren:
            print(f"tests/corpus/dictionaries.py: {name}: {source} has no words: has it moved?")
            bad += 1
        if not (ROOT / "tests/corpus" / name).is_dir():
            print(f"tests/corpus/dictionaries.py: {name}: no corpus has this name")
            bad += 1
        if sys.argv[1] != "--check":
            path = pathlib.Path(sys.argv[1]) / f"{name}.dict"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(quoted(word) + "\n" for word in words))
    for seed in unexplained():
        print(f"tests/corpus/README.md: {seed}: no row, or no such seed")
        bad += 1
    print(f"dictionaries: {len(FORMATS)}, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
