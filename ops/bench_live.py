# SPDX-License-Identifier: Apache-2.0
"""Figures of the leader's live page: what those who look at it cost the cluster."""
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "build/release/bin")
VIEWERS = (0, 5)


def fleet(viewers, seconds):
    """What bench-fleet prints with so many viewers, by name."""
    command = [f"{BIN}/bench-fleet", "1000", "8", str(seconds), str(viewers)]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return {line["figure"]: line for line in map(json.loads, out.splitlines())}


def live_page(o, say, report, load):
    """1,000 nodes whose leader serves its page: decisions, processor and bytes with 5 viewers and with none, by turns"""
    before, seen = load(), {viewers: [] for viewers in VIEWERS}
    for turn in range(1 if o.quick else 3):
        for viewers in VIEWERS:
            seen[viewers].append(fleet(viewers, 5 if o.quick else 30))
            say("%d viewers, turn %d: %s" % (viewers, turn + 1, {name: line["value"] for name, line in seen[viewers][-1].items()}))

    def values(figure, viewers):
        return [line[figure]["value"] for line in seen[viewers]]
    report("viewers_decision", "ms", 100.0, values("controller_death_to_world", VIEWERS[-1]), before, viewers=VIEWERS[-1],
           without_viewers=values("controller_death_to_world", 0))
    report("viewers_cpu", "% of a core", 2.0, [seen_by - alone for seen_by, alone in zip(
        values("controller_cpu", VIEWERS[-1]), values("controller_cpu", 0))], before, viewers=VIEWERS[-1])
    report("viewers_bytes", "kB", 200.0, values("live_page_bytes", VIEWERS[-1]), before, viewers=VIEWERS[-1])


FIGURES = [live_page]
