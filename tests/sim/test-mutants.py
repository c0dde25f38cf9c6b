#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every planted bug must be found by the simulator, by a checker that is meant to find it.

usage: test-mutants.py MUTATE TABLE SOURCE-ROOT FOLDER-OF-PROGRAMS [--write]
Prints the table: mutant, which invariant named it, by which seed. The seed that found a mutant last time stands in
mutant-seeds.txt and is tried first; what it does not find any more is searched for from seed 1 on. --write searches for
all of them and writes that file anew.
"""
import pathlib
import re
import subprocess
import sys

SCHEDULES_MAX = 12000  # of 8 nodes; more would not fit into the time that all tests have
KEPT = pathlib.Path(__file__).with_name("mutant-seeds.txt")
mutate, table, root, folder = sys.argv[1:5]
write = sys.argv[5:] == ["--write"]


def search(name, seeds):
    """Which invariant names the mutant, by which of the seeds; "nothing" when none does."""
    run = subprocess.run([str(pathlib.Path(folder) / f"sim-{name}"), "--seeds", seeds, "--first"], capture_output=True, text=True)
    found = re.findall(r"^BROKEN (\S+) by seed (\d+)", run.stdout, re.M)
    return found[0] if found else ("nothing", "-")


def main():
    names = subprocess.run([sys.executable, mutate, table, root, "--names"], capture_output=True, text=True, check=True)
    kept = {} if write else dict(line.split() for line in KEPT.read_text().splitlines() if not line.startswith("#"))
    lines, survivors = [], 0
    print(f"{'planted bug':40} {'found by':10} seed")
    for line in names.stdout.splitlines():
        name, checkers, _ = line.split()
        invariant, seed = search(name, "%s..%s" % (kept[name], kept[name])) if name in kept else ("nothing", "-")
        note = ""
        if invariant not in checkers.split(","):
            note = "" if write else "   not by the seed that is kept (test-mutants.py --write)"
            invariant, seed = search(name, f"1..{SCHEDULES_MAX}")
        ok = invariant in checkers.split(",")
        survivors += not ok
        lines.append(f"{name} {seed}\n")
        print(f"{name:40} {invariant:10} {seed:>5}{note if ok else '   SURVIVES'}", flush=True)
    if write and survivors == 0:
        KEPT.write_text("# A seed by which the simulator finds each planted bug; test-mutants.py --write makes this file.\n" + "".join(lines))
    sys.exit(1 if survivors else 0)


main()
