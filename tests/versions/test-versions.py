#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each version's programs beside the present ones, in clusters whose nodes, leaders and sdctl are of two versions: through
a kill, a save, resizes and restores, hand-overs there and back, a job ends with the bits of the run that nothing disturbed.

The programs are built by `versions.py build`. Without SDTRAIN_CHAOS_FULL=1 the oldest and the newest version are tried.
"""
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../system"))
import versions
from lab import BIN, LabCase, process_state, processes_of, until

NODES = ("node1", "node2", "node3")
# A trainer stops itself here, in the middle of a step, so that what a test does meanwhile is in the middle of the job.
GATE = "loop.compute=stop@%d"
# What a program says of a record, message or request that it cannot use.
REFUSED = re.compile(r".*(?:cannot be read|/sdtrain(?:-secrets)?/dev/\S+: |channel: |may not say|ignoring |ignored: |"
                     r"numerics .* differ).*")
NEW = os.path.realpath(BIN)
OLD = []  # [(version, its programs)]


def go_on(pid):
    os.kill(pid, signal.SIGCONT)


class Versions(LabCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference = cls.lab.reference(cls.lab.job("reference"))

    def setUp(self):
        self.lab.forget_faults()
        shutil.rmtree(self.lab.path("programs"), ignore_errors=True)

    def each(self, test):
        for version, programs in OLD:
            with self.subTest(version):
                self.setUp()
                self.old = programs
                test()

    # ---- a cluster of two versions ----

    def take(self, folder, *names, only=("sdtraind", "sdtrainer", "sdcontroller")):
        for name in names:
            self.lab.programs(folder, name, *only)

    def up(self, **options):
        self.cluster = self.lab.cluster(nodes=3, patient=NODES, judged=False, **options)
        self.addCleanup(self.cluster.down)

    def ctl_of(self, folder, *arguments):
        """One command by the sdctl of a version; what it prints."""
        mine, self.cluster.sdctl = self.cluster.sdctl, os.path.join(folder, "sdctl")
        try:
            return self.cluster.ctl(*arguments)
        finally:
            self.cluster.sdctl = mine

    def submit(self, folder, name):
        job = self.lab.job(name, world={"min": 1, "max": 3},
                           recovery={"max_failures_at_same_step": 3, "grow_interval_s": 0})
        self.ctl_of(folder, "job", "start", "-f", self.lab.job_file(job))
        return job

    def resize(self, folder, job, size, gate):
        self.ctl_of(folder, "job", "resize", job["name"], "--world", str(size))
        self.cluster.wait(job, "resizing")
        go_on(gate)

    def save(self, folder, job, gate):
        """A checkpoint that is asked for while the job stands at the gate."""
        before = len(self.records("requests"))
        command = subprocess.Popen([os.path.join(folder, "sdctl"), "job", "checkpoint", job["name"], "--timeout", "60"],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=dict(self.lab.environment, **self.cluster.environment))
        until(lambda: len(self.records("requests")) > before and self.records("requests")[-1]["answer"], "its answer")
        go_on(gate)
        text, _ = command.communicate(timeout=90)
        self.assertEqual(command.returncode, 0, text)

    def check_programs(self, program, *folders):
        """It is these folders' that run, and no others."""
        found = {os.path.dirname(os.readlink("/proc/%d/exe" % pid)) for pid, name in processes_of(self.lab.folder)
                 if name == program}
        self.assertEqual(found, set(folders), program)

    # ---- what must hold ----

    def lines(self):
        """"<kind>\\t<value>" of everything in etcd."""
        done = subprocess.run(["etcdctl", "--endpoints", self.cluster.etcd, "get", "--prefix", "/sdtrain", "-w", "json"],
                              stdout=subprocess.PIPE, check=True, env=dict(os.environ, ETCDCTL_API="3"))
        for kv in json.loads(done.stdout)["kvs"]:
            key = base64.b64decode(kv["key"]).decode()
            kind = "secrets" if key.startswith("/sdtrain-secrets/") else key.split("/")[3]
            yield "%s\t%s" % (kind, base64.b64decode(kv["value"]).decode())

    def records(self, kind):
        return [json.loads(line.split("\t", 1)[1]) for line in self.lines() if line.startswith(kind + "\t")]

    def check_records(self):
        """Each version reads all that lies in etcd, whoever wrote it, and would lose nothing of it."""
        path = self.lab.write("lines", "\n".join(self.lines()) + "\n")
        for programs in (self.old, NEW):
            code, text = self.lab.run(os.path.join(programs, "version-fields"), "read-newer", path)
            self.assertEqual(code, 0, text)

    def refusals(self):
        found = []
        for folder, _, names in os.walk(self.cluster.folder):
            for name in names:
                if (name == "log" and "/etcd" not in folder) or name.startswith("rank"):
                    with open(os.path.join(folder, name), errors="replace") as file:
                        found += [line for line in file if REFUSED.match(line)]
        return found

    def finish(self, job, what, incidents):
        self.check_records()
        self.check_same(self.cluster.finish(job), self.reference, what)
        status = self.cluster.status(job)
        self.assertEqual([(i["cause"], i["node"], i["resolved"]) for i in status["incidents"]],
                         [(cause, node, True) for cause, node in incidents], what)
        self.check_records()
        commits = self.records("checkpoints")[0]["commits"]
        self.assertEqual([commit for commit in commits if commit["struck_out"]], [], what)
        modes = {cause["mode"] for cordon in self.records("cordons") for cause in cordon["causes"]}
        self.assertLessEqual(modes, {"none"}, what)  # strikes alone
        self.assertEqual(self.refusals(), [], what)

    # ---- the tests ----

    def test_fields(self):
        """The older version reads every field that this one can write, and keeps those that it does not know."""
        self.each(self.fields)

    def fields(self):
        code, ours = self.lab.run(os.path.join(NEW, "version-fields"), "write")
        self.assertEqual(code, 0, ours)
        code, theirs = self.lab.run(os.path.join(self.old, "version-fields"), "write")
        self.assertEqual(code, 0, theirs)
        known = {line.split("\t")[0] for line in theirs.splitlines()}  # it never looks at others
        path = self.lab.write("fields", "".join(line + "\n" for line in ours.splitlines() if line.split("\t")[0] in known))
        code, text = self.lab.run(os.path.join(self.old, "version-fields"), "read-newer", path)
        self.assertEqual(code, 0, text)

    def through(self, name, nodes, leader, first, second):
        """A kill, a save, two resizes; sdctl is first one version's and then the other's."""
        self.take(nodes, *NODES)
        self.take(leader, "controller1")
        self.up()
        self.cluster.fault("node3", "loop.compute=kill@15", (GATE + "," + GATE) % (8, 16))
        self.cluster.fault("node1", "", "", GATE % 8)
        job = self.submit(first, name)
        gate = self.lab.stopped()  # in the world after the kill
        self.check_programs("sdtraind", nodes)
        self.check_programs("sdtrainer", nodes)
        self.check_programs("sdcontroller", leader)
        self.check_records()
        self.save(second, job, gate)
        self.resize(first, job, 2, self.lab.stopped())
        self.resize(second, job, 3, self.lab.stopped(other_than=gate))
        self.finish(job, name, [("trainer-died", "node3")])
        self.assertEqual(self.cluster.status(job)["generation"], 4)

    def test_newer_leader(self):
        self.each(lambda: self.through("newer-leader", nodes=self.old, leader=NEW, first=self.old, second=NEW))

    def test_older_leader(self):
        self.each(lambda: self.through("older-leader", nodes=NEW, leader=self.old, first=NEW, second=self.old))

    def lead(self, folder):
        """The controller that waits becomes one of that version; then the leader dies, and it leads."""
        status = json.loads(self.cluster.ctl("cluster", "status", "-o", "json"))
        leader, standby = status["leader"], status["standby"][0]
        self.cluster.kill(standby)
        self.take(folder, standby)
        self.cluster.start(standby)
        def stands():
            status = json.loads(self.cluster.ctl("cluster", "status", "-o", "json"))
            return status["standby"] and status["leader"] == leader
        until(stands, standby + " waits")
        self.cluster.kill(leader)
        until(lambda: json.loads(self.cluster.ctl("cluster", "status", "-o", "json"))["leader"] == standby,
              standby + " leads")
        self.take(folder, leader)
        self.cluster.start(leader)

    def leave(self, node):
        """As `systemctl stop` does it: the job saves and goes on without the node."""
        pid = self.cluster.pid(node)
        os.kill(pid, signal.SIGTERM)
        return pid

    def test_rolling(self):
        """Leaders first, then a node, there and back, while the job runs on whoever is there: a world of two versions'
        trainers ends with the same bits."""
        self.each(self.rolling)

    def rolling(self):
        self.take(self.old, *NODES, "controller1", "controller2")
        self.up(controllers=2)
        self.cluster.fault("node3", GATE % 15, "", GATE % 8, GATE % 6)
        self.cluster.fault("node1", "", GATE % 6)
        job = self.submit(self.old, "rolling")
        gate = self.lab.stopped()
        self.lead(NEW)
        pid = self.leave("node2")
        self.cluster.wait(job, "resizing")
        go_on(gate)
        gate = self.lab.stopped(other_than=gate)  # without node2
        until(lambda: process_state(pid) in (None, "Z"), "the end of node2's daemon")
        self.take(NEW, "node2")
        self.cluster.start("node2")
        self.cluster.wait(job, "resizing")  # it grows again
        go_on(gate)
        gate = self.lab.stopped(other_than=gate)
        self.check_programs("sdcontroller", NEW)
        self.check_programs("sdtraind", self.old, NEW)
        self.check_programs("sdtrainer", self.old, NEW)
        self.assertEqual(self.cluster.status(job)["world"]["size"], 3)
        os.kill(self.cluster.rank_on(job, "node2")["pid"], signal.SIGKILL)
        gate = self.lab.stopped(other_than=gate)
        self.lead(self.old)  # and back
        self.check_programs("sdcontroller", self.old)
        self.save(NEW, job, gate)
        self.finish(job, "rolling", [("trainer-died", "node2")])
        self.assertEqual(self.cluster.status(job)["world"]["size"], 3)

    def test_trainer_of_another_version(self):
        """A daemon and trainers of two versions, both ways: what they say to each other may have grown."""
        self.each(self.channels)

    def channels(self):
        self.take(self.old, "node1", only=["sdtraind"])
        self.take(self.old, "node2", only=["sdtrainer"])
        self.up()
        self.cluster.fault("node1", "loop.compute=kill@9")
        job = self.submit(NEW, "channels")
        self.finish(job, "channels", [("trainer-died", "node1")])


def main():
    every = versions.listed()
    if not os.environ.get("SDTRAIN_CHAOS_FULL"):
        every = every[:1] + every[1:][-1:]
    try:
        OLD.extend((version, versions.build(commit)) for version, commit in every)
    except versions.Lacking as e:
        print("skipped: %s" % e)
        return
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
