#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sdctl job evaluate` in real clusters: checkpoints that a person names, and those of a job of another cluster."""
import json
import os
import signal
import subprocess
import unittest

from lab import BIN, Lab, until

EVALUATE = """
import os, sys, sdtrain
step = int(os.environ["SDTRAIN_STEP"])
with open("begun", "a") as file:
    file.write("%d %s\\n" % (step, os.environ["SDTRAIN_CHECKPOINT"]))
if os.path.exists("bad"):
    sys.exit(3)
sdtrain.result("fid", 100 - step)
"""


class Evaluate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.addClassCleanup(cls.lab.close)
        cls.lab.data("data", 40)
        cls.lab.data("held-out", 24, seed=2)
        cls.far = cls.lab.cluster(nodes=1)
        cls.addClassCleanup(cls.far.down)
        cls.near = cls.lab.cluster(nodes=1, trainers=["TESTLAB=" + cls.lab.folder], up=["--allow-exec"])
        cls.addClassCleanup(cls.near.down)
        contexts = cls.lab.write("contexts.json", json.dumps({"contexts": {
            "far": {"etcd": cls.far.etcd, "cluster": "dev"}, "gone": {"etcd": "127.0.0.1:1", "cluster": "dev"}}}))
        cls.near.environment["SDTRAIN_CONTEXTS"] = contexts
        cls.names = 0

    def setUp(self):
        type(self).names += 1
        self.name = "t%d" % self.names
        self.folder = self.lab.path("programs", self.name)
        os.makedirs(self.folder)
        with open(os.path.join(self.folder, "evaluate.py"), "w") as file:
            file.write(EVALUATE)

    def train(self, steps=40):
        """A job of the far cluster."""
        job = self.lab.job(self.name, train__steps=steps, checkpoint__every_steps=5, checkpoint__keep_last=16, world__min=1,
                           world__max=1)
        self.far.submit(job)
        return job

    def loss(self, job, every=10):
        return {"name": job["name"] + "-loss", "kind": "eval", "of": {"job": job["name"], "every_steps": every},
                "world": {"min": 1, "max": 1}, "loss": {"streams": [{"uri": self.lab.path("held-out")}], "positions": 16},
                "checkpoint": {"uri": job["checkpoint"]["uri"]}}

    def program(self, uri):
        client = {"PYTHONPATH": os.path.join(os.environ["SDTRAIN_SOURCE"], "exec", "client")}
        return {"name": self.name + "-fid", "kind": "eval", "of": {"job": self.name}, "world": {"min": 1, "max": 1},
                "exec": {"command": ["python3", "evaluate.py"], "dir": self.folder, "env": client},
                "recovery": {"max_failures_at_same_step": 1}, "checkpoint": {"uri": uri}}

    def evals(self, evaluation):
        return json.loads(self.near.ctl("job", "evals", evaluation["name"], "-o", "json"))

    def verdicts(self, evaluation):
        return [(e["step"], e["verdict"]) for e in self.evals(evaluation)]

    def begun(self):
        with open(os.path.join(self.folder, "begun")) as file:
            return file.read().splitlines()

    def follow(self, evaluation, job, context="far"):
        environment = dict(self.lab.environment, **self.near.environment)
        process = subprocess.Popen([self.near.sdctl, "job", "evaluate", evaluation["name"], "--follow", "%s/%s" % (context, job)],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def commits(self, job):
        """The manifests, oldest first; that of step 0 is the first."""
        done = subprocess.run(["etcdctl", "--endpoints", self.far.etcd, "get", "--print-value-only",
                               "/sdtrain/dev/checkpoints/" + job["name"]], check=True, text=True, stdout=subprocess.PIPE, timeout=60)
        return [commit["uri"] for commit in json.loads(done.stdout)["commits"]]

    def test_a_manifest(self):
        job = self.train()
        self.far.wait(job, "succeeded", timeout=90)
        first, last = self.commits(job)[1], self.commits(job)[-1]
        evaluation = self.loss(job)
        self.near.submit(evaluation)
        until(lambda: "which is not there" in self.near.status(evaluation)["reason"], "it waits")
        text = self.near.ctl("job", "evaluate", evaluation["name"], first, "--wait", "--timeout", "60")
        [found] = self.evals(evaluation)
        numbers = ", ".join("%s %.6g" % number for number in found["numbers"].items())
        self.assertIn("step 5: done: %s\n" % numbers, text)
        self.assertIn("loss", found["numbers"])
        self.assertEqual((found["step"], found["checkpoint"]), (5, first))
        with open(self.lab.path("loss.json"), "w") as file:
            json.dump(evaluation, file)
        code, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "evaluate", "--job", self.lab.path("loss.json"), "--from", first,
                                  errors=subprocess.DEVNULL)
        self.assertEqual({line.split()[0]: float(line.split()[1]) for line in text.splitlines()}, found["numbers"])
        # relative to checkpoint.uri, without the manifest's name; and the first one again
        folder = last.split("/")[-2]
        self.near.ctl("job", "evaluate", evaluation["name"], folder, "--wait", "--timeout", "60")
        self.near.ctl("job", "evaluate", evaluation["name"], first, "--wait", "--timeout", "60")
        self.assertEqual(self.verdicts(evaluation), [(40, "done"), (5, "done")])
        for words, says in (((job["name"], first), "no job %s in cluster" % job["name"]),
                            ((evaluation["name"], first, "--step", "5"), "--step: the manifest says of which step it is"),
                            ((evaluation["name"], "/nowhere/manifest.json"), "/nowhere"),
                            ((evaluation["name"],), "give either a manifest or --follow CONTEXT/JOB"),
                            ((evaluation["name"], first, "--follow", "far/x"), "give either a manifest or --follow"),
                            ((evaluation["name"], "--follow", "far/x", "--wait"), "--follow goes with none of"),
                            ((evaluation["name"], "--follow", "x"), "--follow x: give CONTEXT/JOB"),
                            ((evaluation["name"], "--follow", "nobody/x"), "nobody"),
                            ((evaluation["name"], "--follow", "gone/x"), "127.0.0.1:1"),
                            ((evaluation["name"], "--follow", "far/no-such"), "context far has no job no-such")):
            code, text = self.near.ctl_code("job", "evaluate", *words)
            self.assertNotEqual(code, 0, text)
            self.assertIn(says, text)
        other = self.loss(job)
        other.update(name=self.name + "-other", checkpoint={"uri": self.lab.path("elsewhere")})
        self.near.submit(other)
        code, text = self.near.ctl_code("job", "evaluate", other["name"], first)
        self.assertEqual(code, 1, text)
        self.assertIn("outside of checkpoint.uri of job", text)

    def test_a_programs_checkpoint(self):
        evaluation = self.program(self.folder)
        self.near.submit(evaluation)
        uri = os.path.join(self.folder, "step-7")
        code, text = self.near.ctl_code("job", "evaluate", evaluation["name"], "/elsewhere/7", "--step", "7")
        self.assertEqual(code, 1, text)
        self.assertIn("outside of the job's checkpoint.uri", text)
        text = self.near.ctl("job", "evaluate", evaluation["name"], uri, "--step", "7", "--wait", "--timeout", "60")
        self.assertIn("step 7: done: fid 93\n", text)
        with open(os.path.join(self.folder, "bad"), "w"):
            pass
        code, text = self.near.ctl_code("job", "evaluate", evaluation["name"], uri, "--step", "8", "--wait", "--timeout", "60")
        self.assertEqual(code, 1, text)
        self.assertIn("step 8: failed\n", text)
        self.assertEqual(self.verdicts(evaluation), [(7, "done"), (8, "failed")])
        self.assertEqual(self.begun(), ["7 " + uri, "8 " + uri])

    def test_a_job_of_another_cluster_is_followed(self):
        job = self.train()
        evaluation = self.loss(job)
        self.near.submit(evaluation)
        process = self.follow(evaluation, job["name"])
        until(lambda: self.evals(evaluation), "the first one")
        process.send_signal(signal.SIGINT)  # it may end, and be started again
        process.wait(timeout=60)
        self.far.wait(job, "succeeded", timeout=90)
        process = self.follow(evaluation, job["name"])
        text, _ = process.communicate(timeout=90)
        self.assertEqual(process.returncode, 0, text)
        self.assertIn("job %s of context far has succeeded, and its checkpoints are named" % job["name"], text)
        until(lambda: [step for step, verdict in self.verdicts(evaluation) if verdict == "done"] == [10, 20, 30, 40], "each one, once")
        self.assertEqual([e["checkpoint"] for e in self.evals(evaluation)], self.commits(job)[2::2])

    def test_an_etcd_that_is_away_is_waited_for(self):
        job = self.train(steps=100000)
        evaluation = self.loss(job, every=5)
        self.near.submit(evaluation)
        process = self.follow(evaluation, job["name"])
        until(lambda: self.evals(evaluation), "the first one")
        pid = self.far.pid("etcd")
        os.kill(pid, signal.SIGSTOP)
        try:
            for line in process.stdout:
                if "waiting" in line:
                    break
            self.assertIn("waiting", line)
        finally:
            os.kill(pid, signal.SIGCONT)
        before = len(self.evals(evaluation))
        until(lambda: len(self.evals(evaluation)) > before + 1, "it goes on", timeout=90)
        self.assertIsNone(process.poll())
        self.far.ctl("job", "stop", job["name"], "--wait")


if __name__ == "__main__":
    unittest.main()
