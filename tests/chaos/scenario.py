# SPDX-License-Identifier: Apache-2.0
"""One fault after the other in a cluster that lives on, and the table of what became of each."""
import fnmatch
import json
import os
import re
import sys
import time
import unittest

import history
import machines
from lab import LabCase, Outcome, SOURCE
from machines import until
from network import why_not

sys.path.insert(0, os.path.join(SOURCE, "ops"))
import figures

RESULTS = os.environ.get("SDTRAIN_CHAOS_TABLE") or os.path.join(SOURCE, "build/release/chaos")
FULL = bool(os.environ.get("SDTRAIN_CHAOS_FULL")) or "--full" in sys.argv
WRITES_FIGURES = bool(os.environ.get("SDTRAIN_CHAOS_FIGURES")) or "--figures" in sys.argv
SIZE = 3
COLUMNS = ["fault", "detected by", "detected after s", "decided after s", "first step after s", "outcome"]


class Row:
    """What a scenario is told to expect, and what it found."""

    def __init__(self, fault, causes=(), node=None, nodes=None, outcome="", generations=None, size=SIZE, most=1,
                 timed=True, trouble=None):
        """causes: what the incidents, `most` at most, may be called; none: there is none. node(s): who may be blamed.
        timed: whether clocks tell the same time on all machines. trouble: what incidents beside that may be called
        that end no world."""
        self.fault, self.causes, self.outcome, self.size = fault, causes, outcome, size
        self.blamed = nodes or ([node] if node else None)
        self.most, self.timed, self.trouble = most, timed, trouble
        self.generations = generations  # a list of allowed counts of new worlds, when there is no incident
        self.by, self.detected, self.decided, self.first_step = "", None, None, None

    def line(self):
        def seconds(value):
            return "" if value is None else "%.2f" % value
        return [self.fault, self.by, seconds(self.detected), seconds(self.decided), seconds(self.first_step), self.outcome]


def said(incident):
    """Cause and evidence; of a line that a program had logged, what it says."""
    evidence = re.sub(r"\d{4}-\S+Z \w+ \w+: ", "", incident.get("evidence", ""))
    evidence = re.sub(r"(file://)?/\S+|JOB=.*", "", evidence).strip()
    return "%s: %s" % (incident["cause"], evidence[:80])


def put_file(name, text, group):
    part = os.path.join(RESULTS, ".%s.%s" % (name, group))
    with open(part, "w") as file:
        file.write(text)
    os.replace(part, os.path.join(RESULTS, name))


def write_table(group, rows):
    """This group's rows as JSON, and all groups' rows as one page. Groups run side by side: each file is whole."""
    os.makedirs(RESULTS, exist_ok=True)
    put_file(group + ".json", json.dumps([dict(zip(COLUMNS, row.line())) for row in rows], indent=1), group)
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for name in sorted(os.listdir(RESULTS)):
        if name.endswith(".json"):
            with open(os.path.join(RESULTS, name)) as file:
                lines += ["| " + " | ".join(row[column] for column in COLUMNS) + " |" for row in json.load(file)]
    put_file("chaos-table.md", "\n".join(lines) + "\n", group)
    for row in rows if WRITES_FIGURES else ():
        cells = dict(zip(COLUMNS, row.line()))
        del cells["decided after s"]
        figures.write("chaos", cells.pop("fault"), cells)


class ChaosCase(LabCase):
    """A test of scenarios in one cluster and one job. Each name on the command line behind the program selects."""
    group = None
    every_steps = 10

    @classmethod
    def setUpClass(cls):
        reason = why_not()
        if reason:
            print("skipped: " + reason)
            raise unittest.SkipTest(reason)
        super().setUpClass()

    def setUp(self):
        self.rows, self.cluster = [], None

    def begin(self, cluster, **job):
        self.cluster = cluster
        self.job = self.lab.job(self.group, world={"min": 1, "max": SIZE}, train__steps=1000000,
                                train__global_batch=SIZE, checkpoint__every_steps=self.every_steps,
                                recovery={"max_failures_at_same_step": 50, "grow_interval_s": 0}, **job)
        cluster.submit(self.job)
        self.records = self.settle("the job's start")

    def settle(self, what, size=SIZE):
        try:
            records = until(lambda: self.cluster.steady(self.job, size), "a steady job after " + what, 240)
        except AssertionError as e:
            raise AssertionError("%s\n%s\n%s" % (e, json.dumps(self.cluster.records(), indent=1)[-20000:],
                                                 self.cluster.story())) from e
        self.cluster.note_cgroups()
        return records

    # ---- the world as it is ----

    def world(self):
        return self.records["worlds/" + self.job["name"]]

    def node_of(self, rank):
        """Each node has one slot, so ranks and runs are the same."""
        return self.world()["runs"][rank]["node"]

    def trainer(self, rank):
        report = self.records["ranks/%s/%d/%s" % (self.job["name"], self.world()["generation"], self.node_of(rank))]
        return report["ranks"][0]["pid"]

    def steps_on(self):
        """Training has gone on by some steps since self.records."""
        name = "progress/" + self.job["name"]
        step = self.records[name]["step"]
        until(lambda: self.cluster.records("progress/").get(name, {}).get("step", 0) > step + 3, "more steps", 120)

    def restart_daemon(self, node, **how):
        """Slowly, so that the world has gone on without its node."""
        key = "worlds/" + self.job["name"]
        self.cluster.kill(node)
        until(lambda: node not in [run["node"] for run in self.cluster.records("worlds/").get(key, {}).get("runs", [node])],
              "a world without %s" % node, 120)
        self.cluster.start(node, **how)

    # ---- one scenario ----

    def scenario(self, name, inject, row, heal=None, watch=None):
        """inject() does harm, and may return the time() of it; heal() undoes it once the next world has stepped, or,
        without an incident, once watch() says that it has been seen through."""
        if not self.wanted(name):
            return
        began = time.monotonic()
        try:
            self._scenario(name, inject, row, heal, watch)
        except Exception as e:
            self.keep_story(name, e)
        self.note(name, row, time.monotonic() - began)

    def wanted(self, name):
        return not SELECTED or any(fnmatch.fnmatch(name, wanted) for wanted in SELECTED)

    def note(self, name, row, took=None):
        self.rows.append(row)
        write_table(self.group, self.rows)
        print("%-28s %s  %s" % (name, "" if took is None else "%6.1f s" % took, " | ".join(row.line())), flush=True)

    def keep_story(self, name, error):
        """Ends the test by the scenario's name."""
        path = os.path.join(RESULTS, "failed-%s-%s.txt" % (self.group, name))
        os.makedirs(RESULTS, exist_ok=True)
        records = self.cluster.records()
        with open(path, "w") as file:
            file.write(json.dumps(records, indent=1) + "\n" + self.cluster.story())
        told = {key: value for key, value in records.items() if key.startswith(("phases/", "progress/", "incidents/"))}
        raise AssertionError("scenario %s: %s\n%s\n%s\nmore of what the programs said is in %s" %
                             (name, error, json.dumps(told)[-3000:], self.cluster.story(8)[:12000], path)) from error

    def _scenario(self, name, inject, row, heal, watch):
        self.records = self.settle("what was before " + name)
        if "hang" in row.causes and row.blamed:
            self.steps_on()  # a rank's own steps bound its silence from the fourth on: it is found first
        generation = self.world()["generation"]
        self.past = {i["id"] for i in self.cluster.incidents(generation)}
        at = time.time()
        told = inject()
        if isinstance(told, float):
            at = told
        if row.causes:
            incident = until(lambda: self.recovery(generation), "recovery from " + name, 180)
            row.by = said(incident)
        if row.causes and row.timed:
            row.detected = max(0.0, incident["at_usec"] / 1e6 + incident.get("detect_s", 0) - at)
            row.decided = self.decided_usec(incident["id"]) / 1e6 - at
            row.first_step = incident["first_step_usec"] / 1e6 - at
        if watch:
            row.by, row.detected = watch(at)
        if heal:
            heal()
        self.records = self.settle(name, row.size)
        self.check(name, generation, row)

    def recovery(self, generation):
        """The incident that a later world has recovered from; a job that failed for good says why at once."""
        for incident in self.incidents(generation):
            if incident.get("first_step_usec") and incident["state"] == "resolved":
                return incident
        phase = self.cluster.records("phases/")["phases/" + self.job["name"]]
        if phase["phase"] == "failed":
            raise AssertionError("%s failed: %s" % (self.job["name"], phase["reason"]))
        return None

    def incidents(self, generation):
        """Of this scenario: one before it may have had a trouble in the same generation."""
        return [i for i in self.cluster.incidents(generation) if i["id"] not in self.past]

    def decided_usec(self, incident):
        """When the world was decided that answers the incident."""
        phase = self.cluster.records("phases/")["phases/" + self.job["name"]]
        generation = int(incident.rpartition("-")[2])
        return next(w["decided_usec"] for w in phase["worlds"] if w["generation"] == generation + 1)

    def check(self, name, generation, row):
        incidents = self.incidents(generation)
        told = [(i["cause"], i.get("node", ""), i.get("evidence")) for i in incidents]
        new = self.world()["generation"] - generation
        if not row.causes:
            self.assertEqual([i for i in told if i[0] != row.trouble], [], name)
            self.assertIn(new, row.generations or [0], "%s: worlds" % name)
            return
        self.assertLessEqual(len(told), row.most, "%s: %d incidents at most, not %s" % (name, row.most, told))
        for cause, node, _ in told:
            self.assertIn(cause, row.causes, "%s: %s" % (name, told))
            if row.blamed:
                self.assertIn(node, row.blamed, "%s: %s" % (name, told))
        self.assertLessEqual(new, row.most + 1, "%s: worlds; one for each incident, one to grow" % name)

    # ---- the end ----

    def finish(self):
        """The job stops at a step's end; then everything is compared and everything is gone."""
        name, cluster = self.job["name"], self.cluster
        cluster.ctl("job", "stop", name)
        cluster.wait(self.job, "stopped", 180)
        records = cluster.records()
        told = history.judge(cluster.recorder, "chaos-" + self.group, settled=True)
        print(told, flush=True)
        self.assertIn(" %d worlds," % records["worlds/" + name]["generation"], told, "a generation has one world")
        commit = records["checkpoints/" + name]["commits"][-1]
        cluster.down()
        left = until(lambda: not cluster.leftovers() or cluster.leftovers(), "the end", 60)
        if left is not True:
            try:
                until(lambda: not cluster.leftovers(), "", 60)
            except AssertionError:
                self.fail("left behind: %s" % cluster.leftovers())
        self.compare(commit)

    def read(self, uri):
        """An object of the job's."""
        with open(uri[len("file://"):] if uri.startswith("file://") else uri) as file:
            return file.read()

    def compare(self, commit):
        """What was trained to that commit, against the undisturbed run of as many steps, whose data and checkpoints
        are files."""
        manifest = json.loads(self.read(commit["uri"]))
        alone = dict(self.job, name=self.job["name"] + "-alone", data=self.lab.job("")["data"],
                     checkpoint={"uri": self.lab.path("alone"), "every_steps": 1000000},
                     train=dict(self.job["train"], steps=commit["step"]))
        code, text = self.lab.train(alone, timeout=900)
        self.assertEqual(code, 0, text[-2000:])
        reference = Outcome(alone["name"], self.lab.digest(alone), self.lab.metrics(alone))
        lines = []
        for segment in manifest["metrics"]:
            lines += map(json.loads, self.read(self.job["checkpoint"]["uri"] + "/" + segment["key"]).splitlines())
        self.assertEqual([line["step"] for line in lines], list(range(1, commit["step"] + 1)))
        self.check_same(Outcome(self.job["name"], manifest["digest"], lines), reference, self.group)
        print("%s: %d steps in %d worlds end with digest %s, as undisturbed" %
              (self.group, commit["step"], commit["generation"], manifest["digest"]), flush=True)


SELECTED = []


def main():
    """program [--full] [SCENARIO...]"""
    SELECTED.extend(word for word in sys.argv[1:] if word not in ("--full", "--figures"))
    machines.resource.setrlimit(machines.resource.RLIMIT_CORE, (0, 0))
    unittest.main(verbosity=2, argv=sys.argv[:1])


def full():
    return FULL
