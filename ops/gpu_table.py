#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of GPU figures in README, made from the committed results of ops/gpu.

    ops/gpu_table.py [--check] [--results DIR] [--readme FILE]

A row says what is wanted, what was predicted before any run, what was measured, and the commit of the bundle that measured it. What was never run says so; what ran on
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


def speed(grains):
    return lambda stage: number("{:.1f} samples/s")(value(stage, "samples_per_second", grains))


def memory(stage):
    """The most that was in use on the GPU while a job ran; GB."""
    mib = value(stage, "memory_mib")
    return None if mib is None else f"{mib * 2**20 / 1e9:.1f} GB"


def start(stage):
    """A start that finds plans and writes no first save."""
    parts = value(stage, "first", "start")
    return None if parts is None else f"{value(stage, 'first', 'start_seconds') - parts.get('first save', 0):.1f} s"


def kernels(stage):
    """How many results of kernels differ from the emulator's bits."""
    differ = value(stage, "differ")
    return None if differ is None else f"{sum(map(len, differ.values()))} differ" if any(differ.values()) else "equal"


def worlds(stage):
    cases = value(stage, "cases")
    return None if not cases else f"{len(cases)} cases, {len({(one['kind'], one['digest']) for one in cases})} of {len({one['kind'] for one in cases})} digests"


def digests(stage):
    return {True: "equal", False: "differ"}.get(value(stage, "digests_equal"))


def ratio(stage):
    return number("{:.2f}")(value(stage, "ratio"))


# What, what is wanted, what was predicted for an H100 before any run, the stage, and how its figure is written.
ROWS = [
    ("sd2-base at 512², one grain of 32 a step", "110 samples/s", "130", "profile-512", speed("1")),
    ("sd2-base at 512², 8 grains of 32 a step", "", "140", "profile-512", speed("8")),
    ("sd2-base at 256², one grain of 128 a step", "480 samples/s", "596", "profile-256", speed("1")),
    ("sd2-base at 256², 8 grains of 128 a step", "", "649", "profile-256", speed("8")),
    ("libraries' time of torch's, 512²", "1.05", "", "peer-shapes-512", ratio),
    ("speed of PyTorch's eager, 512²", "1.5", "2.2 to 3.7", "peer-eager-512", ratio),
    ("speed of PyTorch's compiled, 512²", "1.1", "1.4 to 2.2", "peer-compiled-512", ratio),
    ("memory of a job at 512², grain 32", "60 GB", "", "bench-512", memory),
    ("process start to first step", "15 s", "", "bench-512", start),
    ("own kernels' bits beside the emulator's", "equal", "equal", "bits", kernels),
    ("a small job in other worlds, killed, restored", "1 digest a kind", "", "exactness", worlds),
    ("two runs of a job at 512², digests", "equal", "equal", "job-512", digests),
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
    stages = {stage: read(folder, stage) for _, _, _, stage, _ in ROWS}
    newest = max(stages.values(), key=lambda one: one.get("ended", 0)).get("commit")
    for what, wanted, predicted, stage, figure in ROWS:
        result = stages[stage]
        told = (figure(result) if result.get("passed") is not None else None) or NEVER
        if result.get("passed") is False:
            told = "failed" if told in (NEVER, "failed") else f"{told}, failed"
        commit = (result.get("commit") or "not known") if told != NEVER else ""
        yield what, wanted, predicted, told, commit + (" (older)" if commit and commit != newest else "")


def table(results):
    gpus = sorted(name for name in os.listdir(results) if os.path.isfile(os.path.join(results, name, "result.json"))) if os.path.isdir(results) else []
    lines = []
    for gpu in gpus or ["no GPU yet"]:
        lines += [f"| {gpu.replace('-', ' ')} | wanted | predicted, H100 | measured | commit |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |") for row in rows(os.path.join(results, gpu))]
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
