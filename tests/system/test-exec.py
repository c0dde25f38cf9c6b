#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of kind "exec" in a cluster: programs of Python's own library on three nodes, whose ranks and nodes die, which leave,
grow and shrink, and which end each with its own rank."""
import json
import os
import signal
import subprocess
import unittest

from foreign import TRAINER, program_of
from lab import Lab, process_state, until

SILENT = """#!/bin/sh
# Says nothing to anybody. Rank 0 ends first.
: >ran-$RANK
[ "$RANK" = 0 ] || while [ ! -e ends ]; do sleep 0.02; done
: >ended-$RANK
"""


BEAT = """
import os, time
generation = os.environ["SDTRAIN_GENERATION"]
with open("beats-" + generation, "w") as file:
    while not os.path.exists("ends"):
        file.write("%d\\n" % time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        file.flush()
        time.sleep(0.002)
"""


class Exec(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.addClassCleanup(cls.lab.close)
        cls.cluster = cls.lab.cluster(nodes=3, slots=2, trainers=["TESTLAB=" + cls.lab.folder], up=["--allow-exec"], bearing="--hang-floor-sec 5")
        cls.addClassCleanup(cls.cluster.down)
        cls.names = 0

    def setUp(self):
        type(self).names += 1
        self.name = "p%d" % self.names
        self.folder = self.lab.path("programs", self.name)
        os.makedirs(self.folder)
        self.write("train.py", TRAINER)
        self.faults()

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o755):
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), mode)

    def faults(self, *lines):
        self.write("faults", "".join(line + "\n" for line in lines))

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def there(self, name):
        until(lambda: os.path.exists(self.path(name)), "%s of %s\n%s" % (name, self.name, self.cluster.story()), timeout=60)

    def job(self, command=("python3", "train.py", "30", "10"), world=None, recovery=None, **more):
        return {"name": self.name, "kind": "exec", "world": world or {"min": 3, "max": 3},
                "exec": {"command": list(command), "dir": self.folder, **more},
                "checkpoint": {"uri": self.path("checkpoints")},
                "recovery": {"max_failures_at_same_step": 3, "grow_interval_s": 0, **(recovery or {})}}

    def submit(self, job):
        self.cluster.submit(job)
        return job

    def succeeds(self, job):
        self.cluster.wait(job, "succeeded", timeout=60)
        return self.cluster.status(job)

    def end(self, rank=0):
        with open(self.path("end-%d" % rank)) as file:
            return json.load(file)

    def etcdctl(self, *words, text=None):
        return subprocess.run(["etcdctl", "--endpoints", self.cluster.etcd, *words], check=True, input=text, text=True,
                              stdout=subprocess.PIPE, timeout=60).stdout

    def test_to_its_end(self):
        job = self.submit(self.job(steps=30))
        status = self.succeeds(job)
        self.assertEqual(self.end(), {"step": 30, "sum": 465})
        self.assertEqual(status["step"], 30)
        self.assertEqual(status["generation"], 1)
        self.assertEqual(status["incidents"], [])
        self.assertEqual(sorted(rank["node"] for rank in status["world"]["ranks"]), ["node1", "node2", "node3"])
        commits = json.loads(self.etcdctl("get", "--print-value-only", "/sdtrain/dev/checkpoints/" + self.name))["commits"]
        self.assertEqual([(c["step"], c["uri"]) for c in commits],
                         [(n, self.path("checkpoints/g1-step-%d" % n)) for n in (10, 20, 30)])

    def test_it_ends_with_its_last_rank(self):
        self.write("silent", SILENT)
        job = self.submit(self.job(["./silent"]))
        self.there("ended-0")
        until(lambda: self.cluster.status(job)["world"]["ranks"][0]["state"] == "done", "rank 0 has ended")
        self.assertEqual(self.cluster.status(job)["phase"], "running")
        self.assertFalse(os.path.exists(self.path("ended-1")))
        self.write("ends", "")
        status = self.succeeds(job)
        self.assertTrue(all(os.path.exists(self.path("ended-%d" % rank)) for rank in range(3)))
        self.assertEqual(status["generation"], 1)

    def test_a_killed_program(self):
        self.faults("1 1 12 9")
        status = self.succeeds(self.submit(self.job()))
        self.assertEqual(self.end(), {"step": 30, "sum": 465})
        self.assertEqual(status["generation"], 2)
        (incident,) = status["incidents"]
        self.assertEqual((incident["cause"], incident["rank"]), ("trainer-died", 1))
        self.assertIn("SIGKILL", incident["evidence"])
        self.assertTrue(os.path.exists(self.path("checkpoints/g2-step-20")))

    def test_a_stopped_program(self):
        """It names its stages: the rank that others wait for is to blame."""
        self.faults("1 1 12 %d" % signal.SIGSTOP)
        status = self.succeeds(self.submit(self.job(["python3", "train.py", "30", "10", "stages"])))
        self.assertEqual(self.end(), {"step": 30, "sum": 465})
        (incident,) = status["incidents"]
        self.assertEqual((incident["cause"], incident["rank"]), ("hang", 1))

    def test_a_hang_is_explained(self):
        """The incident names the innermost frame of the rank that others wait for, and the log has its stacks."""
        self.faults("1 1 12 hang")
        status = self.succeeds(self.submit(self.job(["python3", "train.py", "30", "10", "stages"])))
        self.assertEqual(self.end(), {"step": 30, "sum": 465})
        (incident,) = status["incidents"]
        self.assertEqual((incident["cause"], incident["rank"]), ("hang", 1))
        self.assertRegex(incident["evidence"], r"no progress since step 12, computing; it stood in fault \(train.py:\d+\)")
        log = self.cluster.ctl("job", "logs", self.name, "--rank", "1", "--generation", "1")
        self.assertRegex(log, r"process \d+ \(python3\S*\) sleeps")
        self.assertIn("(most recent call first):", log)

    def test_a_silent_program_that_is_stopped(self):
        """The kernel tells which of the silent ranks stands still by itself."""
        self.faults("1 2 12 %d" % signal.SIGSTOP)
        status = self.succeeds(self.submit(self.job(silence_s=3)))
        self.assertEqual(self.end(), {"step": 30, "sum": 465})
        (incident,) = status["incidents"]
        self.assertEqual((incident["cause"], incident["rank"]), ("hang", 2))
        self.assertIn("it was stopped", incident["evidence"])

    def test_a_fence(self):
        """A node whose daemon stands still: with fence_s 0 its program is dead before the next one starts elsewhere."""
        self.write("beat.py", BEAT)
        job = self.submit(self.job(["python3", "beat.py"], world={"min": 1, "max": 1}, fence_s=0))
        self.there("beats-1")
        (rank,) = self.cluster.status(job)["world"]["ranks"]
        daemon = self.cluster.pid(rank["node"])
        os.kill(daemon, signal.SIGSTOP)
        try:
            self.there("beats-2")
            until(lambda: os.path.getsize(self.path("beats-2")), "a beat")
        finally:
            os.kill(daemon, signal.SIGCONT)
        with open(self.path("beats-1")) as file:
            last = int(file.read().split("\n")[-2])
        with open(self.path("beats-2")) as file:
            first = int(file.readline())
        self.assertLess(last, first)
        self.write("ends", "")
        self.succeeds(job)
        until(lambda: self.cluster.incarnation(rank["node"]), rank["node"])

    def test_a_program_with_a_bug(self):
        """It ends the job after three times without a further step, and no machine is to blame."""
        self.faults(*["%d 1 2 exit3" % generation for generation in range(1, 9)])
        job = self.submit(self.job())
        self.cluster.wait(job, "failed", timeout=60)
        status = self.cluster.status(job)
        self.assertIn(status["generation"], (4, 5, 6))  # the last step before the bug is not heard of each time
        cordons = self.etcdctl("get", "--prefix", "--print-value-only", "/sdtrain/dev/cordons/").splitlines()
        self.assertNotIn(self.name, [cause.get("job") for line in cordons if line for cause in json.loads(line)["causes"]])

    def test_a_dead_node(self):
        self.write("wait-15", "")
        job = self.submit(self.job(world={"min": 2, "max": 3}))
        self.there("stands-0")
        node = self.cluster.status(job)["world"]["ranks"][2]["node"]
        self.cluster.kill(node)
        os.unlink(self.path("wait-15"))
        status = self.succeeds(job)
        self.assertEqual(self.end(), {"step": 30, "sum": 465})
        self.assertEqual(status["world"]["size"], 2)
        self.cluster.start(node)
        until(lambda: self.cluster.incarnation(node), node)

    def test_stop_and_start(self):
        """Each rank is asked to leave, so nothing is lost."""
        self.write("wait-13", "")
        job = self.submit(self.job())
        self.there("stands-0")
        self.cluster.ctl("job", "stop", self.name, "--wait", "--timeout", "60")
        self.assertTrue(os.path.exists(self.path("checkpoints/g1-step-13")))
        self.assertEqual({self.end(rank)["step"] for rank in range(3)}, {13})
        os.unlink(self.path("wait-13"))
        self.cluster.ctl("job", "start", self.name)
        status = self.succeeds(job)
        self.assertEqual(self.end(), {"step": 30, "sum": 465})
        self.assertEqual(status["generation"], 2)
        self.assertEqual(status["incidents"], [])

    def test_other_sizes(self):
        """Each node gives two ranks, or none."""
        self.write("wait-9", "")
        self.write("wait-18", "")
        job = self.submit(self.job(world={"min": 2, "max": 6, "per_node": 2}))
        self.there("stands-5")
        code, text = self.cluster.ctl_code("job", "resize", self.name, "--world", "3")
        self.assertEqual(code, 1, text)
        self.assertIn("--world 3: each node of job %s gives 2 ranks (world.per_node)" % self.name, text)
        self.cluster.ctl("job", "resize", self.name, "--world", "2")  # a rank that is asked to leave waits no more
        until(lambda: self.read("stands-0") == "2", "the second world")
        ranks = self.cluster.status(job)["world"]["ranks"]
        self.assertEqual(len(ranks), 2)
        self.assertEqual(len({rank["node"] for rank in ranks}), 1)
        self.cluster.ctl("job", "resize", self.name, "--world", "4")
        status = self.succeeds(job)
        self.assertEqual(status["world"]["size"], 4)
        self.assertEqual(self.end(), {"step": 30, "sum": 465})

    def test_a_node_that_runs_no_programs(self):
        self.cluster.configure("node3", allow_exec=False)
        try:
            self.write("wait-5", "")
            job = self.submit(self.job(world={"min": 1, "max": 3}))
            self.there("stands-0")
            status = self.cluster.status(job)
            self.assertEqual(sorted(rank["node"] for rank in status["world"]["ranks"]), ["node1", "node2"])
        finally:
            self.cluster.configure("node3", allow_exec=True)
            os.unlink(self.path("wait-5"))
        self.succeeds(job)

    def test_a_program_that_was_swapped(self):
        """Nodes run what the submission said, and nothing else."""
        self.write("wait-15", "")
        job = self.submit(self.job())
        self.there("stands-0")
        key = "/sdtrain/dev/programs/" + self.name
        record = json.loads(self.etcdctl("get", "--print-value-only", key))
        other = dict(record, file=json.dumps(self.job(["touch", "swapped"])))
        self.etcdctl("put", key, text=json.dumps(other))
        os.kill(program_of(self.lab, self.name, 1), signal.SIGKILL)
        until(lambda: "not the one that the world was made for" in self.cluster.story(400), "a refusal")
        self.assertFalse(os.path.exists(self.path("swapped")))
        os.unlink(self.path("wait-15"))
        self.etcdctl("put", key, text=json.dumps(record))
        self.succeeds(job)
        self.cluster.ctl("job", "delete", self.name)
        until(lambda: "/%s\n" % self.name not in self.cluster.keys(), "no record of the job")

    def test_a_daemon_that_dies_takes_its_program_along(self):
        self.write("wait-15", "")
        job = self.submit(self.job(world={"min": 2, "max": 3}))
        self.there("stands-0")
        ranks = self.cluster.status(job)["world"]["ranks"]
        pid = program_of(self.lab, self.name, 1)
        self.cluster.kill(ranks[1]["node"])
        until(lambda: process_state(pid) in (None, "Z"), "the program's end")
        self.cluster.start(ranks[1]["node"])
        os.unlink(self.path("wait-15"))
        self.succeeds(job)
        self.assertEqual(self.end(), {"step": 30, "sum": 465})


if __name__ == "__main__":
    unittest.main(verbosity=2)
