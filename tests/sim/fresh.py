#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs schedules that nobody has run before, in batches, and goes on where it was killed.

usage: fresh.py SCHEDULES [--sim PROGRAM] [--folder FOLDER] [--record FILE] [--batch SCHEDULES] [--nodes N]
FOLDER (build/sim-fresh) holds state.json, which the next call goes on from, and `broken`: lines for tests/sim/seeds.
At the end a row is added to FILE (tests/sim/record.md). ops/test --sim calls it.
"""
import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
TOLD = re.compile(r"^sim: (\d+) schedules, twice each, (\d+) broken", re.M)
PER_SECOND = 10000  # seeds that the clock leaves to each second: main.c


def commit_now():
    """The commit that is run; a + behind it: with changes."""
    done = [subprocess.run(["git", "-C", SOURCE, *command], check=False, capture_output=True, text=True).stdout.strip()
            for command in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])]
    return (done[0] or "unknown") + ("+" if done[1] else "")


def save(path, state):
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(state, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)


def load(path, fresh):
    """The state to go on from: of the same commit, count and size, else a fresh one."""
    try:
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
    except (OSError, ValueError):
        return fresh
    same = all(state.get(key) == fresh[key] for key in ("commit", "schedules", "nodes"))
    if not same:
        print("fresh: %s is of another run; this one begins anew" % path)
    return state if same else fresh


def run_batch(options, state, count):
    """Adds what one batch did to the state; False: it could not be run."""
    first = state["first"] + state["done"]
    began = time.monotonic()
    done = subprocess.run([options.sim, "--nodes", str(options.nodes), "--seeds", "%d..%d" % (first, first + count - 1), "--broken",
                           os.path.join(options.folder, "broken")], check=False, stdout=subprocess.PIPE, text=True)
    told = TOLD.search(done.stdout)
    if not told or int(told.group(1)) + int(told.group(2)) < count:
        print(done.stdout + "fresh: sim exits with %d, and does not tell of %d schedules" % (done.returncode, count))
        return False
    if done.returncode:
        print(done.stdout, flush=True)
    state["done"] += count
    state["broken"] += int(told.group(2))
    state["seconds"] += time.monotonic() - began
    return True


def add_row(path, state):
    row = "| %s | %s | %d..%d | %d | %d | %d | %d | %.0f |\n" % (
        datetime.datetime.now(datetime.timezone.utc).date(), state["commit"], state["first"], state["first"] + state["done"] - 1,
        state["nodes"], state["done"], state["broken"], len(os.sched_getaffinity(0)), state["done"] / state["seconds"])
    with open(path, "a", encoding="utf-8") as file:
        file.write(row)
    print("%s has: %s" % (os.path.relpath(path), row), end="")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("schedules", type=int)
    parser.add_argument("--sim", default=os.path.join(SOURCE, "build/release/bin/sim"))
    parser.add_argument("--folder", default=os.path.join(SOURCE, "build/sim-fresh"))
    parser.add_argument("--record", default=os.path.join(SOURCE, "tests/sim/record.md"))
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=8)
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    path = os.path.join(options.folder, "state.json")
    state = load(path, {"commit": commit_now(), "first": int(time.time() * PER_SECOND), "schedules": options.schedules,
                        "nodes": options.nodes, "done": 0, "broken": 0, "seconds": 0.0})
    print("fresh: seeds %d..%d%s" % (state["first"], state["first"] + options.schedules - 1,
                                     ", %d done already" % state["done"] if state["done"] else ""), flush=True)
    while state["done"] < options.schedules:
        if not run_batch(options, state, min(options.batch, options.schedules - state["done"])):
            return 2
        save(path, state)
        rate = state["done"] / state["seconds"]
        end = datetime.datetime.now() + datetime.timedelta(seconds=(options.schedules - state["done"]) / rate)
        print("fresh: %d of %d, %d broken, %.0f a second, ends about %s" % (
            state["done"], options.schedules, state["broken"], rate, end.strftime("%F %T")), flush=True)
    add_row(options.record, state)
    os.remove(path)
    return 1 if state["broken"] else 0


sys.exit(main())
