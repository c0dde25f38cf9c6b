#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of GPU figures in README, made from the committed results of ops/gpu.

    ops/gpu_table.py [--check] [--results DIR] [--readme FILE]

A row says what is wanted, what was measured, and the commit of the bundle that measured it. What was never run says so; what ran on
another commit than the newest result is marked. --check writes nothing: 1 if the page has another table.
"""
import argparse
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- made by ops/gpu_table.py -->", "<!-- end -->"
NEVER = "never run"


def value(result, *path):
    """result[path...], None where it is not there."""
    for key in path:
        result = result.get(key) if isinstance(result, dict) else None
    return result


def number(form):
    return lambda value: None if value is None else form.format(value)


def speed(stage):
    samples, memory = value(stage, "samples_per_second"), value(stage, "memory_mib")
    return None if samples is None or memory is None else f"{samples:.1f} samples/s, {memory * 2**20 / 1e9:.1f} GB"


def start(stage):
    """A start that finds plans and writes no first save."""
    parts = value(stage, "first", "start")
    return None if parts is None else f"{value(stage, 'first', 'start_seconds') - parts.get('first save', 0):.1f} s"


RATIO = number("{:.2f}")
# What, what is wanted, the stage, and how its figure is written.
ROWS = [
    ("sd2-base at 512², grain 32", "100 samples/s, 60 GB", "bench-512", speed),
    ("sd2-base at 256², grain 128", "400 samples/s, 55 GB", "bench-256", speed),
    ("libraries' time of torch's, 512²", "1.05", "peer-shapes", lambda r: RATIO(value(r, "512", "ratio"))),
    ("libraries' time of torch's, 256²", "1.05", "peer-shapes", lambda r: RATIO(value(r, "256", "ratio"))),
    ("speed of PyTorch's eager, 512²", "1.1", "peer-eager-512", lambda r: RATIO(value(r, "ratio"))),
    ("speed of PyTorch's compiled, 512²", "0.9", "peer-compiled-512", lambda r: RATIO(value(r, "ratio"))),
    ("speed of PyTorch's eager, 256²", "1.1", "peer-eager-256", lambda r: RATIO(value(r, "ratio"))),
    ("speed of PyTorch's compiled, 256²", "0.9", "peer-compiled-256", lambda r: RATIO(value(r, "ratio"))),
    ("process start to first step", "15 s", "bench-512", start),
    ("two runs of 512², digests", "equal", "sd2-512", lambda r: {True: "equal", False: "differ"}.get(value(r, "digests_equal"))),
    ("two runs of 256², digests", "equal", "sd2-256", lambda r: {True: "equal", False: "differ"}.get(value(r, "digests_equal"))),
]


def read(folder, stage):
    try:
        with open(os.path.join(folder, stage + ".json"), encoding="utf-8") as file:
            result = json.load(file)
    except FileNotFoundError:
        return {}
    return result if isinstance(result, dict) else {}


def rows(folder):
    """Of one GPU."""
    stages = {stage: read(folder, stage) for _, _, stage, _ in ROWS}
    newest = max(stages.values(), key=lambda one: one.get("ended", 0)).get("commit")
    for what, wanted, stage, figure in ROWS:
        result = stages[stage]
        told = (figure(result) if result.get("passed") is not None else None) or NEVER
        if result.get("passed") is False:
            told = "failed" if told in (NEVER, "failed") else f"{told}, failed"
        commit = (result.get("commit") or "not known") if told != NEVER else ""
        yield what, wanted, told, commit + (" (older)" if commit and commit != newest else "")


def table(results):
    gpus = sorted(name for name in os.listdir(results) if os.path.isfile(os.path.join(results, name, "result.json"))) if os.path.isdir(results) else []
    lines = []
    for gpu in gpus or ["no GPU yet"]:
        lines += [f"| {gpu.replace('-', ' ')} | wanted | measured | commit |", "|---|---|---|---|"]
        lines += [f"| {what} | {wanted} | {told} | {commit} |".replace("|  |", "| |") for what, wanted, told, commit in rows(os.path.join(results, gpu))]
        lines.append("")
    return "\n".join(lines).rstrip("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", default=os.path.join(ROOT, "ops/gpu-results"))
    parser.add_argument("--readme", default=os.path.join(ROOT, "README.md"))
    arguments = parser.parse_args()
    with open(arguments.readme, encoding="utf-8") as file:
        text = file.read()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"{arguments.readme} has no place for the table: {BEGIN} ... {END}", file=sys.stderr)
        return 1
    made = f"{before}{BEGIN}\n\n{table(arguments.results)}\n\n{END}{after}"
    if arguments.check:
        if made != text:
            print(f"{arguments.readme} and {arguments.results} differ: run ops/gpu_table.py", file=sys.stderr)
        return int(made != text)
    if made != text:
        with open(arguments.readme, "w", encoding="utf-8") as file:
            file.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
