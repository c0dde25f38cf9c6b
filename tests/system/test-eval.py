#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of kind "eval" in a cluster: the checkpoints of a trainer and of a program are evaluated, once each, on slots that
no other job needs."""
import json
import os
import signal
import subprocess
import unittest

from foreign import program_of
from lab import BIN, Lab, until

EVALUATE = """
import os, sys, time
uri, step = os.environ["SDTRAIN_CHECKPOINT"], int(os.environ["SDTRAIN_STEP"])
with open("begun", "a") as file:
    file.write("%d %s\\n" % (step, uri))
while os.path.exists("hold"):
    time.sleep(0.02)
if not os.path.exists(uri.removeprefix("file://")):
    print("the checkpoint of step %d is gone" % step)
    sys.exit(4)
if os.path.exists("bad-%d" % step):
    print("the images of step %d are black" % step)
    sys.exit(3)
import sdtrain
sdtrain.result("fid", 100 - step)
sdtrain.result("clip/score", step / 1000)
sdtrain.result("bad", float("nan"))
sdtrain.artifact("grid", "s3://bucket/grid-%d.png" % step)
sdtrain.status("40 images")
with open("done", "a") as file:
    file.write("%d\\n" % step)
"""

TRAIN = """
import os, shutil, sys, time
import sdtrain
steps, pause, keep = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
step = int(os.environ["SDTRAIN_STEP"] or 0)
while step < steps:
    if os.path.exists("wait-%d" % step):
        time.sleep(0.02)
        continue
    time.sleep(pause)
    step += 1
    sdtrain.step(step)
    if step % 5 == 0:
        path = os.path.join(os.getcwd(), "checkpoints", "step-%d" % step)
        os.makedirs(path, exist_ok=True)
        sdtrain.checkpoint(path, step, timeout=60)
        there = sorted(int(name[5:]) for name in os.listdir("checkpoints"))
        for old in there[:-keep] if keep else []:
            if old not in sdtrain.held():
                shutil.rmtree("checkpoints/step-%d" % old)
"""


CLIENT = {"PYTHONPATH": os.path.join(os.environ["SDTRAIN_SOURCE"], "exec", "client")}


class Eval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.addClassCleanup(cls.lab.close)
        cls.lab.data("data", 40)
        cls.cluster = cls.lab.cluster(nodes=2, slots=1, trainers=["TESTLAB=" + cls.lab.folder], up=["--allow-exec"])
        cls.addClassCleanup(cls.cluster.down)
        cls.names = 0

    def setUp(self):
        type(self).names += 1
        self.name = "t%d" % self.names
        self.folder = self.lab.path("programs", self.name)
        os.makedirs(self.folder)
        self.write("evaluate.py", EVALUATE)
        self.write("train.py", TRAIN)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text=""):
        with open(self.path(name), "w") as file:
            file.write(text)

    def lines(self, name):
        try:
            with open(self.path(name)) as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def evaluation(self, of=None, uri=None, **more):
        return {"name": self.name + "-eval", "kind": "eval", "of": of or {"job": self.name}, "world": {"min": 1, "max": 1},
                "exec": {"command": ["python3", "evaluate.py"], "dir": self.folder, "env": CLIENT},
                "checkpoint": {"uri": uri or self.path("checkpoints")}, **more}

    def program(self, steps=20, pause=0.02, keep=0):
        return {"name": self.name, "kind": "exec", "world": {"min": 1, "max": 1},
                "exec": {"command": ["python3", "train.py", str(steps), str(pause), str(keep)],
                         "dir": self.folder, "env": CLIENT},
                "checkpoint": {"uri": self.path("checkpoints"), **({"keep_last": keep} if keep else {})}}

    def record(self, kind, name):
        done = subprocess.run(["etcdctl", "--endpoints", self.cluster.etcd, "get", "--print-value-only",
                               "/sdtrain/dev/%s/%s" % (kind, name)], check=True, text=True, stdout=subprocess.PIPE, timeout=60)
        return json.loads(done.stdout)

    def keys(self, job):
        prefix = "/sdtrain/dev/evals/%s/" % job["name"]
        done = subprocess.run(["etcdctl", "--endpoints", self.cluster.etcd, "get", "--prefix", "--keys-only", prefix], check=True,
                              text=True, stdout=subprocess.PIPE, timeout=60)
        return [key.removeprefix(prefix) for key in done.stdout.split()]

    def verdicts(self, job):
        return [(r["step"], r["verdict"]) for r in self.record("phases", job["name"]).get("eval_results", [])]

    def test_each_checkpoint_of_a_program(self):
        job, evaluation = self.program(), self.evaluation()
        self.cluster.submit(evaluation)  # it waits for the job
        until(lambda: "which is not there" in self.cluster.status(evaluation)["reason"], "it waits")
        self.cluster.submit(job)
        self.cluster.wait(job, "succeeded", timeout=60)
        self.cluster.wait(evaluation, "succeeded", timeout=60)
        self.assertEqual(self.lines("done"), ["5", "10", "15", "20"])
        self.assertEqual(self.verdicts(evaluation), [(n, "done") for n in (5, 10, 15, 20)])
        self.assertEqual(self.lines("begun")[0], "5 " + self.path("checkpoints/step-5"))
        status = self.cluster.status(evaluation)
        self.assertEqual((status["kind"], status["incidents"]), ("eval", []))
        evals = json.loads(self.cluster.ctl("job", "evals", evaluation["name"], "-o", "json"))
        self.assertEqual([(e["step"], e["verdict"], e["numbers"], e["artifacts"], e["text"], e["checkpoint"]) for e in evals],
                         [(n, "done", {"fid": 100 - n, "clip/score": n / 1000, "bad": None}, {"grid": "s3://bucket/grid-%d.png" % n},
                           "40 images", self.path("checkpoints/step-%d" % n)) for n in (5, 10, 15, 20)])
        self.assertTrue(all(e["node"].startswith("node") and 0 < e["seconds"] < 60 for e in evals))
        table = self.cluster.ctl("job", "evals", evaluation["name"]).splitlines()
        self.assertEqual(table[0].split(), ["STEP", "VERDICT", "TIME", "TOOK", "fid", "clip/score", "bad", "ARTIFACTS"])
        self.assertEqual(table[1].split()[-4:], ["95", "0.005", "nan", "s3://bucket/grid-5.png"])
        self.assertEqual(self.keys(evaluation), ["10", "15", "20", "5"])
        self.cluster.ctl("job", "delete", evaluation["name"])
        until(lambda: self.keys(evaluation) == [], "its results are removed with the job")
        code, text = self.cluster.ctl_code("job", "evals", job["name"])
        self.assertEqual(code, 1, text)
        self.assertIn('kind: "exec": it evaluates no other job', text)

    def test_each_checkpoint_of_a_trainer(self):
        job = self.lab.job(self.name, train__steps=20, checkpoint__every_steps=5, world__min=1, world__max=1)
        evaluation = self.evaluation({"job": self.name, "every_steps": 10}, uri=job["checkpoint"]["uri"])
        self.cluster.submit(job)
        self.cluster.submit(evaluation)
        self.cluster.wait(evaluation, "succeeded", timeout=90)
        self.assertEqual(self.verdicts(evaluation), [(10, "done"), (20, "done")])
        for line in self.lines("begun"):
            with open(line.split(" ", 1)[1].removeprefix("file://")) as file:
                self.assertEqual(json.load(file)["step"], int(line.split()[0]))

    def stays(self, job):
        """Evaluates a job that keeps its newest two checkpoints, and is killed once. Its first evaluation lasts longer."""
        def there():
            return sorted(int(name.split("-")[1]) for name in os.listdir(self.path("checkpoints")) if name.startswith("step-"))
        self.write("hold")
        self.write("wait-10")
        os.makedirs(self.path("checkpoints"))
        evaluation = self.evaluation()
        self.cluster.submit(evaluation)
        self.cluster.submit(job)
        until(lambda: self.lines("begun"), "the first evaluation has begun", timeout=60)
        held = int(self.lines("begun")[0].split()[0])
        os.unlink(self.path("wait-10"))
        until(lambda: there()[-1] >= held + 15 and held + 5 not in there(), "older checkpoints are removed", timeout=60)
        self.assertIn(held, there())
        pid = self.cluster.status(job)["world"]["ranks"][0]["pid"]
        os.kill(program_of(self.lab, self.name, 0) if job.get("kind") == "exec" else pid, signal.SIGKILL)
        self.cluster.wait(job, "succeeded", timeout=90)
        self.assertEqual(self.cluster.status(job)["generation"], 2)
        self.assertEqual(there(), [held, 95, 100])
        os.unlink(self.path("hold"))
        self.cluster.wait(evaluation, "succeeded", timeout=60)
        self.assertEqual(self.lines("done"), [str(held), "95", "100"])
        self.assertEqual([step for step, verdict in self.verdicts(evaluation) if verdict == "done"], [held, 95, 100])
        self.assertEqual(self.cluster.status(evaluation)["incidents"], [])

    def test_what_is_evaluated_stays_of_a_program(self):
        self.stays(self.program(steps=100, keep=2))

    def test_what_is_evaluated_stays_of_a_trainer(self):
        # each save that is due is there: where training does not wait for saves, one is left out while another is written
        job = self.lab.job(self.name, train__steps=100, checkpoint__every_steps=5, checkpoint__keep_last=2, world__min=1,
                           world__max=1, checkpoint__blocking=True)
        job["checkpoint"]["uri"] = self.path("checkpoints")
        self.stays(job)

    def test_the_loss_of_each_checkpoint(self):
        """sdtrainer measures it by itself, with the numbers that `sdtrainer evaluate` prints."""
        self.lab.data("held-out", 24, seed=2)
        job = self.lab.job(self.name, train__steps=20, checkpoint__every_steps=10, world__min=1, world__max=1)
        evaluation = {"name": self.name + "-loss", "kind": "eval", "of": {"job": self.name}, "world": {"min": 1, "max": 1},
                      "loss": {"streams": [{"uri": self.lab.path("held-out")}], "positions": 64},
                      "checkpoint": {"uri": job["checkpoint"]["uri"]}}
        self.write("loss.json", json.dumps(evaluation))
        self.assertIn("job %s would be submitted: loss of 64 samples, for checkpoints of job %s" % (evaluation["name"], self.name),
                      self.cluster.ctl("job", "start", "-f", self.path("loss.json"), "--dry-run"))
        self.cluster.submit(job)
        self.cluster.submit(evaluation)
        self.cluster.wait(evaluation, "succeeded", timeout=90)
        status = self.cluster.status(evaluation)
        self.assertEqual((status["kind"], status["incidents"]), ("eval", []))
        self.assertEqual(self.record("specs", evaluation["name"])["program"], 32 * "0")  # no right to run programs is needed
        evals = json.loads(self.cluster.ctl("job", "evals", evaluation["name"], "-o", "json"))
        self.assertEqual([(e["step"], e["verdict"]) for e in evals], [(10, "done"), (20, "done")])
        for one in evals:
            code, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "evaluate", "--job", self.path("loss.json"), "--from",
                                      one["checkpoint"], errors=subprocess.DEVNULL)
            self.assertEqual(code, 0)
            self.assertEqual({line.split()[0]: float(line.split()[1]) for line in text.splitlines()}, one["numbers"])
        self.assertLess(evals[1]["numbers"]["loss"], evals[0]["numbers"]["loss"])
        for change, says in (({"--resume": "/x/manifest.json"}, "--resume: an evaluation takes the checkpoints of job"),
                             ({"--set": 'loss.streams=[{"uri": "relative"}]'}, 'loss.streams: "relative" is relative'),
                             ({"--set": "loss.device=cuda"}, 'loss.device: "cuda" needs 1 slot that has a GPU'),
                             ({"--set": "checkpoint.uri=/elsewhere"}, "is not where the checkpoints of job")):
            code, text = self.cluster.ctl_code("job", "start", "-f", self.path("loss.json"), "--name", "other",
                                               *(word for pair in change.items() for word in pair))
            self.assertNotEqual(code, 0)
            self.assertIn(says, text)

    def test_a_grid_of_each_checkpoint(self):
        """sdtrainer draws it by itself, with the bytes that `sdtrainer sample` draws, though it is killed in the middle."""
        job = self.lab.job(self.name, train__steps=20, checkpoint__every_steps=10, world__min=1, world__max=1)
        grid = {"streams": job["data"]["streams"], "empty_text": job["data"]["empty_text"], "samples": 5, "steps": 100,
                "uri": self.path("grids")}
        evaluation = {"name": self.name + "-grid", "kind": "eval", "of": {"job": self.name}, "world": {"min": 1, "max": 1},
                      "grid": grid, "checkpoint": {"uri": job["checkpoint"]["uri"]}}
        self.write("grid.json", json.dumps(evaluation))
        self.assertIn("job %s would be submitted: 5 pictures, for checkpoints of job %s" % (evaluation["name"], self.name),
                      self.cluster.ctl("job", "start", "-f", self.path("grid.json"), "--dry-run"))
        self.cluster.submit(job)
        self.cluster.submit(evaluation)

        def steps_drawn():
            status = self.cluster.status(evaluation)
            return (status["step"], status["world"]) if status["step"] and status["world"] else None
        step, world = until(steps_drawn, "pictures are drawn", timeout=90)
        self.assertLess(step, 205)
        os.kill(world["ranks"][0]["pid"], signal.SIGKILL)
        self.cluster.wait(evaluation, "succeeded", timeout=120)
        evals = json.loads(self.cluster.ctl("job", "evals", evaluation["name"], "-o", "json"))
        self.assertEqual([(e["step"], e["verdict"], e["numbers"], e["text"]) for e in evals],
                         [(n, "done", {}, "5 pictures by the EMA weights") for n in (10, 20)])
        self.assertEqual(self.cluster.status(evaluation)["steps"], 205)  # 100 of four pictures, 100 of one, five decoded
        for one in evals:
            code, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "sample", "--job", self.lab.job_file(job), "--out",
                                      self.path("wanted.png"), "--samples", "5", "--steps", "100", "--from", one["checkpoint"])
            self.assertEqual(code, 0, text)
            uri = one["artifacts"]["grid"]
            self.assertIn(uri, self.cluster.ctl("job", "evals", evaluation["name"]))
            with open(uri, "rb") as drawn, open(self.path("wanted.png"), "rb") as wanted:
                self.assertEqual(drawn.read(), wanted.read(), one)
        self.assertEqual(len(os.listdir(self.path("grids"))), 2)
        for change, says in (({"--set": "grid.uri=grids"}, 'grid.uri: "grids" is relative'),
                             ({"--set": "grid.model=model"}, 'grid.model: "model" is relative'),
                             ({"--set": "grid.device=cuda"}, 'grid.device: "cuda" needs 1 slot that has a GPU'),
                             ({"--set": 'grid.streams=[{"uri": "relative"}]'}, 'grid.streams: "relative" is relative')):
            code, text = self.cluster.ctl_code("job", "start", "-f", self.path("grid.json"), "--name", "other",
                                               *(word for pair in change.items() for word in pair))
            self.assertNotEqual(code, 0)
            self.assertIn(says, text)

    def test_the_loss_is_that_of_training(self):
        """On the training data, without dropped captions, a checkpoint has the loss of the step that comes next."""
        job = self.lab.job(self.name, train__steps=4, train__caption_drop=0, checkpoint__every_steps=4)
        outcome = self.lab.reference(job)
        first = self.lab.manifests(job)[0]
        self.assertEqual(first[1]["step"], 0)
        loss = {"streams": job["data"]["streams"], "positions": 4, "weights": "weights"}
        evaluation = {"name": self.name + "-loss", "kind": "eval", "of": {"job": self.name}, "world": {"min": 1, "max": 1},
                      "loss": loss, "checkpoint": {"uri": job["checkpoint"]["uri"]}}
        self.write("loss.json", json.dumps(evaluation))
        command = [os.path.join(BIN, "sdtrainer"), "evaluate", "--job", self.path("loss.json"), "--from", first[0]]
        code, text = self.lab.run(*command, errors=subprocess.DEVNULL)
        name, number = text.split()
        self.assertEqual((code, name, float("%.9g" % float(number))), (0, "loss", outcome.metrics[0]["loss"]))
        for change, number, says in (({"weights": "ema"}, 78, "has no EMA weights (loss.weights)"),
                                     ({"streams": [{"uri": "/nowhere"}]}, 78, "loss.streams: data.streams[0]: file:///nowhere")):
            self.write("loss.json", json.dumps({**evaluation, "loss": {**loss, **change}}))
            code, text = self.lab.run(*command)
            self.assertEqual(code, number, text)
            self.assertIn(says, text)

    def test_it_yields_its_slot(self):
        self.write("hold")
        self.write("wait-10")
        job, evaluation = self.program(pause=0.01), self.evaluation()
        self.cluster.submit(job)
        self.cluster.submit(evaluation)
        until(lambda: len(self.lines("begun")) == 1, "the first evaluation has begun", timeout=60)
        other = {**self.program(steps=3), "name": self.name + "-other", "priority": -10}
        other["checkpoint"] = {"uri": self.path("others")}
        self.cluster.submit(other)
        self.cluster.wait(other, "succeeded", timeout=60)
        until(lambda: len(self.lines("begun")) == 2, "the evaluation has begun again", timeout=60)
        os.unlink(self.path("hold"))
        os.unlink(self.path("wait-10"))
        self.cluster.wait(evaluation, "succeeded", timeout=60)
        self.assertEqual(self.lines("done"), ["5", "10", "15", "20"])
        self.assertEqual([line.split()[0] for line in self.lines("begun")][:2], ["5", "5"])
        self.assertEqual(self.cluster.status(job)["generation"], 1)
        self.assertEqual(self.cluster.status(evaluation)["incidents"], [])

    def test_an_evaluation_that_fails_warns(self):
        self.write("bad-5")
        job = self.program(steps=10)
        evaluation = self.evaluation(recovery={"max_failures_at_same_step": 2})
        self.cluster.submit(job)
        self.cluster.submit(evaluation)
        self.cluster.wait(evaluation, "succeeded", timeout=60)
        self.assertEqual(self.verdicts(evaluation), [(5, "failed"), (10, "done")])
        self.assertEqual([line.split()[0] for line in self.lines("begun")], ["5", "5", "10"])
        (incident,) = self.cluster.status(evaluation)["incidents"]
        self.assertEqual(self.record("incidents", evaluation["name"] + "-2")["severity"], "warning")
        self.assertEqual(incident["evidence"], "step 5 of job %s is not evaluated, after 2 tries: exit 75: "
                         "the images of step 5 are black" % self.name)

    def test_it_is_done_once_though_it_is_killed(self):
        self.write("hold")
        job, evaluation = self.program(steps=10), self.evaluation()
        self.cluster.submit(job)
        self.cluster.wait(job, "succeeded", timeout=60)
        self.cluster.submit(evaluation)
        until(lambda: len(self.lines("begun")) == 1, "it has begun", timeout=60)
        os.kill(program_of(self.lab, evaluation["name"], 0), signal.SIGKILL)
        until(lambda: len(self.lines("begun")) == 2, "it has begun again", timeout=60)
        os.unlink(self.path("hold"))
        self.cluster.wait(evaluation, "succeeded", timeout=60)
        self.assertEqual(self.lines("done"), ["5", "10"])
        self.assertEqual(self.verdicts(evaluation), [(5, "done"), (10, "done")])
        nodes = json.loads(self.cluster.ctl("node", "list", "-o", "json"))
        self.assertEqual([node for node in nodes if node.get("strikes")], [])

    def test_refusals(self):
        job = self.program(steps=1)
        self.cluster.submit(job)
        self.cluster.wait(job, "succeeded", timeout=60)
        evaluation = self.evaluation(uri="/elsewhere")
        for change, says in (({"checkpoint": {"uri": "/elsewhere"}}, "is not where the checkpoints of job %s lie" % self.name),
                             ({"of": {"job": self.name + "-eval"}}, "is this job itself")):
            self.write("job.json", json.dumps({**evaluation, **change}))
            code, text = self.cluster.ctl_code("job", "start", "-f", self.path("job.json"))
            self.assertNotEqual(code, 0)
            self.assertIn(says, text)
        self.cluster.submit(self.evaluation())
        self.write("job.json", json.dumps({**evaluation, "name": self.name + "-more", "of": {"job": self.name + "-eval"}}))
        code, text = self.cluster.ctl_code("job", "start", "-f", self.path("job.json"))
        self.assertIn("is an evaluation, and has no checkpoints", text)
        self.write("job.json", json.dumps({**evaluation, "exec": None, "name": self.name + "-loss", "loss": {"streams": [{"uri": "/d"}]}}
                                          ).replace('"exec": null, ', ""))
        code, text = self.cluster.ctl_code("job", "start", "-f", self.path("job.json"))
        self.assertNotEqual(code, 0)
        self.assertIn("only its program can read the checkpoints of " + self.name, text)
        for verb in ("sample", "export", "metrics"):
            code, text = self.cluster.ctl_code("job", verb, self.name + "-eval", "--out", self.path("out"))
            self.assertIn('kind: "eval": it has no checkpoints of its own', text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
