#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Captions a second of one core: our tokenizer beside open_clip's Python, in turns.

    bench_tokens.py --write FILE     openclipart's captions, one a line
    bench_tokens.py --time FILE      captions a second of processor time by open_clip's own file, its cache warm

ops/bench calls both with the Python of tests/interop/tokenizer-python, which has open_clip.
"""
import importlib.util
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
MERGES = ROOT / "encoders/tokenizer/bpe_simple_vocab_16e6.txt.gz"


def captions(o, say, report, load):
    """captions a second of one core (processor time), ours over open_clip's Python, the cache of which is warm"""
    before, runs, ratios, rates = load(), 3 if o.quick else 9, [], {"ours": [], "open_clip": []}
    python = subprocess.run([ROOT / "tests/interop/tokenizer-python"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    path = pathlib.Path(o.dir) / "captions.txt"
    subprocess.run([python, __file__, "--write", path], check=True)
    for _ in range(runs):
        with open(path, "rb") as file:
            ours = json.loads(subprocess.run([ROOT / "build/release/bin/bench-tokenizer", MERGES, "open_clip", "20"], stdin=file,
                                             stdout=subprocess.PIPE, check=True, text=True).stdout)
        theirs = json.loads(subprocess.run([python, __file__, "--time", path], stdout=subprocess.PIPE, check=True, text=True).stdout)
        rates["ours"].append(ours["captions_per_s"])
        rates["open_clip"].append(theirs["captions_per_s"])
        ratios.append(rates["ours"][-1] / rates["open_clip"][-1])
        say(f"captions/s: {rates['ours'][-1]:,.0f} ours, {rates['open_clip'][-1]:,.0f} open_clip's")
    report("captions", "x open_clip", 10, ratios, before, least=True, captions=ours["captions"], bytes=ours["bytes"],
           per_s={name: round(sorted(each)[runs // 2]) for name, each in rates.items()}, open_ms=ours["open_ms"], peer=theirs["peer"])


FIGURES = [captions]


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("--write", "--time"):
        sys.exit(__doc__)
    spec = importlib.util.spec_from_file_location("compare_tokenizer", ROOT / "tests/interop/compare-tokenizer.py")
    compare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compare)
    path = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "--write":
        path.write_text("".join(" ".join(text.split()) + "\n" for text in compare.openclipart()), encoding="utf-8")
        return
    from importlib.metadata import version
    texts, encode = path.read_text(encoding="utf-8").splitlines(), compare.wheel_tokenizer()
    for text in texts:
        encode(text)
    begin = time.process_time()
    for text in texts:
        encode(text)
    took = time.process_time() - begin
    print(json.dumps({"captions_per_s": round(len(texts) / took), "peer": f"open_clip_torch {version('open_clip_torch')}, ftfy {version('ftfy')}"}))


if __name__ == "__main__":
    main()
