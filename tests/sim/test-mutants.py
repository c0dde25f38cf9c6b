#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every planted bug must be found by the simulator, by a checker that is meant to find it.

usage: test-mutants.py MUTATE TABLE SOURCE-ROOT FOLDER-OF-PROGRAMS
Prints the table: mutant, which invariant named it, after how many schedules.
"""
import pathlib
import re
import subprocess
import sys

SCHEDULES_MAX = 12000  # of 8 nodes; more would not fit into the time that all tests have
mutate, table, root, folder = sys.argv[1:]


def main():
    names = subprocess.run([sys.executable, mutate, table, root, "--names"], capture_output=True, text=True, check=True)
    survivors = 0
    print(f"{'planted bug':40} {'found by':10} schedules")
    for line in names.stdout.splitlines():
        name, checkers, _ = line.split()
        run = subprocess.run([str(pathlib.Path(folder) / f"sim-{name}"), "--seeds", f"1..{SCHEDULES_MAX}", "--first"],
                             capture_output=True, text=True)
        found = re.findall(r"^BROKEN (\S+) by seed (\d+)", run.stdout, re.M)
        done = re.search(r"^sim: (\d+) schedules", run.stdout, re.M)
        invariant = found[0][0] if found else "nothing"
        ok = invariant in checkers.split(",")
        survivors += not ok
        print(f"{name:40} {invariant:10} {done.group(1) if done else '?':>9}{'' if ok else '   SURVIVES'}", flush=True)
    sys.exit(1 if survivors else 0)


main()
