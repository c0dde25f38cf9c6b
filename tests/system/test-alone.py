#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The promise on one rank without a cluster: killed at every fault point of the trainer, its checkpoints and its
store, at more and more visits, and started again until the job is done."""
import json
import os
import re
import signal
import subprocess
import unittest

import dataset
from lab import BIN, SOURCE, LabCase

# Each is visited in the life of a job of 12 steps that saves every two.
POINTS = ["canned.compute", "loop.compute", "loop.nan", "data.open", "data.read", "saver.saved",
          "checkpoint.memory", "checkpoint.copied",
          "checkpoint.object", "checkpoint.local", "checkpoint.gathered", "checkpoint.manifest.before", "checkpoint.manifest.after",
          "checkpoint.settle", "checkpoint.retire.manifest", "checkpoint.retire.object", "store.put.before",
          "store.put.half", "store.put.after"]
# Of compressed shards and of data that lie elsewhere: test-cache and test-stream strike there. Of S3: test-checkpoint-s3. Of a
# device that breaks, and of a loss that is not finite: test-run; that hangs: test-hang. Of metrics that were refused: test-checkpoint-history. Of `sdtrainer sample`: test-sample.
ELSEWHERE = {"store.put.parts", "cache.write", "cache.reserve", "cache.patience", "cache.commit", "loader.fill", "sample.restore", "sample.step",
             "saver.patience", "device.broken", "device.impatient", "plans.made", "plans.put", "plans.wait", "loop.late", "checkpoint.missed",
             "drawing.latents"}
SHORT = dict(train__steps=12, checkpoint__every_steps=2, checkpoint__keep_last=2, train__ema={"start_step": 4})


def points_in_source():
    found = set()
    for folder in ("trainer", "store"):
        for where, _, names in os.walk(os.path.join(SOURCE, folder)):
            for name in names:
                if name.endswith(".c") and not name.startswith(("test", "bench-", "fuzz-")):
                    with open(os.path.join(where, name)) as file:
                        found |= set(re.findall(r'"((?:%s)\.[a-z.]+)"' % "|".join(
                            sorted({point.split(".")[0] for point in POINTS})), file.read()))
                    with open(os.path.join(where, name)) as file:
                        found |= set(re.findall(r'\bfault\("([^"]+)"\)', file.read()))
    with open(os.path.join(SOURCE, "docs/reference/job-file.md")) as file:
        return found - set(re.findall("`([a-z_.]+)`", file.read()))  # keys of the job file are not points


class Alone(LabCase):
    latents = dataset.SMALL

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference = cls.lab.reference(cls.lab.job("reference", **SHORT))

    def outcome(self, job):
        return type(self.reference)(job["name"], self.lab.digest(job), self.lab.metrics(job))

    def check_tidy(self, job):
        """Nothing but what the checkpoints that are left, and the history of their metrics, name."""
        names = [os.path.join(folder, name) for folder, _, files in os.walk(job["checkpoint"]["uri"])
                 for name in files]
        self.assertEqual([name for name in names if os.path.basename(name).startswith(".")], [])
        self.assertEqual(sum(name.endswith("/manifest.json") for name in names), 2)

    def test_saves_that_block(self):
        """What is written from the state itself is one step's, however long it takes."""
        changes = dict(train__steps=4, checkpoint__every_steps=1, checkpoint__keep_last=9)
        waits = self.lab.job("waits", **dict(changes, checkpoint__keep_every=1))  # each save is waited for
        self.lab.reference(waits)
        wanted = {m["step"]: m["digest"] for _, m in self.lab.manifests(waits)}
        self.assertEqual(len(set(wanted.values())), 5)
        job = self.lab.job("blocking", **dict(changes, checkpoint__blocking=True))
        first = len(self.lab.manifests(waits)[0][1]["objects"])
        slow = ",".join("checkpoint.object=slow@%d" % (first + n) for n in range(2, 18))
        code, text = self.lab.train(job, fault=slow)
        self.assertEqual(code, 0, text)
        found = {m["step"]: m["digest"] for _, m in self.lab.manifests(job)}
        self.assertIn(1, found)
        self.assertEqual(found, {step: wanted[step] for step in found})

    def test_killed_at_each_point(self):
        self.assertEqual(points_in_source() - set(POINTS) - ELSEWHERE, set(), "fault points that nothing here visits")
        for point in POINTS:
            with self.subTest(point):
                job = self.lab.job(point.replace(".", "-"), checkpoint__local_dir=self.lab.path("local"), **SHORT)
                visit, deaths = 1, 0
                while True:
                    code, text = self.lab.train(job, fault="%s=kill@%d" % (point, visit))
                    if code != -signal.SIGKILL:
                        break
                    deaths += 1
                    visit *= 2
                    self.assertLess(visit, 1 << 20)
                self.assertEqual(code, 0, text)
                self.assertGreater(deaths, 0, "%s is never visited" % point)
                self.check_same(self.outcome(job), self.reference, point)
                self.check_tidy(job)

    def test_more_steps(self):
        """A job that is done goes on in the same folder, with more steps, and is the same as one that had them at once."""
        job = self.lab.job("more", **dict(SHORT, train__steps=7))
        self.assertEqual(self.lab.train(job)[0], 0)
        self.lab.metrics(job)
        job["train"]["steps"] = SHORT["train__steps"]
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        self.check_same(self.outcome(job), self.reference, "more steps")

    def test_killed_while_metrics_are_merged(self):
        """The save of step 17 merges the first 16 segments: whatever is left of it, each step has its line once."""
        changes = dict(SHORT, train__steps=19, checkpoint__every_steps=1, checkpoint__keep_every=1)  # none is skipped
        reference = self.lab.reference(self.lab.job("merged", **changes))
        self.assertEqual([s["level"] for s in self.lab.manifests(self.lab.job("merged", **changes))[-1][1]["metrics"]],
                         [1, 0, 0, 0])
        for point, visit in (("checkpoint.gathered", 18), ("checkpoint.manifest.after", 18),
                             ("checkpoint.settle", 18)):
            with self.subTest(point):
                job = self.lab.job("merged-" + point.replace(".", "-"), **changes)
                self.assertEqual(self.lab.train(job, fault="%s=kill@%d" % (point, visit))[0], -signal.SIGKILL)
                code, text = self.lab.train(job)
                self.assertEqual(code, 0, text)
                self.check_same(self.outcome(job), reference, point)
                listed = {s["key"] for _, m in self.lab.manifests(job) for s in m["metrics"]}
                found = {"metrics/" + name for name in os.listdir(os.path.join(job["checkpoint"]["uri"], "metrics"))}
                self.assertEqual(found, listed)

    def test_lost_metrics(self):
        """Segments that are gone or rotten cost their own lines and nothing else."""
        job = self.lab.job("lost", **dict(SHORT, train__steps=7, checkpoint__keep_every=2))  # no save is skipped
        self.assertEqual(self.lab.train(job)[0], 0)
        folder = job["checkpoint"]["uri"]
        segments = self.lab.manifests(job)[-1][1]["metrics"]
        os.remove(os.path.join(folder, segments[0]["key"]))
        with open(os.path.join(folder, segments[2]["key"]), "r+b") as file:
            file.write(b"[")
        os.remove(os.path.join(folder, "metrics.jsonl"))
        job["train"]["steps"] = SHORT["train__steps"]
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        self.assertIn("lacks 4 steps between 1 and 6: their metrics are lost", text)
        self.assertEqual(self.lab.digest(job), self.reference.digest)
        with open(os.path.join(folder, "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual(lines, [line for line in self.reference.metrics if line["step"] not in (1, 2, 5, 6)])

    def test_stopped_by_signals(self):
        """SIGTERM and SIGINT in the middle of a step: it is finished and saved, and the next start goes on."""
        job = self.lab.job("signals", **dict(SHORT, checkpoint__every_steps=100))
        command = [os.path.join(BIN, "sdtrainer"), "run", "--job", self.lab.job_file(job)]
        seen = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            trainer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                       env=dict(self.lab.environment, SDTRAIN_FAULT="loop.compute=stop@14"))
            self.assertEqual(self.lab.stopped(), trainer.pid)
            trainer.send_signal(number)
            trainer.send_signal(signal.SIGCONT)
            text, _ = trainer.communicate(timeout=120)
            self.assertEqual(trainer.returncode, 0)
            step = int(re.match(r"step=(\d+) ", text).group(1))
            self.assertGreater(step, seen)
            self.assertLess(step, 12)
            seen = step
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        self.check_same(self.outcome(job), self.reference, "signals")

    def test_done_already(self):
        job = self.lab.job("again", **SHORT)
        self.lab.reference(job)
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        self.check_same(self.outcome(job), self.reference, "started again when it was done")

    def folders(self, job):
        """The folders that hold a manifest, newest first."""
        uri = job["checkpoint"]["uri"]
        return sorted((name for name in os.listdir(uri) if os.path.exists(os.path.join(uri, name, "manifest.json"))),
                      reverse=True)

    def damage(self, path):
        """One bit in the middle; size and times of the folder stay."""
        with open(path, "r+b") as file:
            at = os.path.getsize(path) // 2
            file.seek(at)
            byte = file.read(1)[0] ^ 1
            file.seek(at)
            file.write(bytes([byte]))

    def test_falls_back(self):
        """The newest checkpoint does not verify, in its manifest, in an object, or for an object that is gone: the one
        before it goes on, and the log says which folder was left aside. None is good: nothing begins anew."""
        short = dict(SHORT, checkpoint__every_steps=4, checkpoint__keep_last=4)
        for what in ("manifest.json", "unet/diffusion_pytorch_model.safetensors", "moments/c000000.bin", "gone"):
            with self.subTest(what):
                job = self.lab.job("back-" + what.split("/")[0].split(".")[0], **short)
                code, text = self.lab.train(job, fault="saver.saved=kill@3")
                self.assertEqual(code, -signal.SIGKILL, text)
                newest = self.folders(job)[0]
                if what == "gone":
                    os.unlink(os.path.join(job["checkpoint"]["uri"], newest, "moments/c000000.bin"))
                else:
                    self.damage(os.path.join(job["checkpoint"]["uri"], newest, what))
                code, text = self.lab.train(job)
                self.assertEqual(code, 0, text)
                self.assertIn("%s is left aside" % newest, text)
                self.check_same(self.outcome(job), self.reference, what)
        job = self.lab.job("back-none", **short)
        code, text = self.lab.train(job, fault="saver.saved=kill@3")
        self.assertEqual(code, -signal.SIGKILL, text)
        before = self.folders(job)
        self.assertGreater(len(before), 1)
        for folder in before:
            self.damage(os.path.join(job["checkpoint"]["uri"], folder, "unet/diffusion_pytorch_model.safetensors"))
        code, text = self.lab.train(job)
        self.assertEqual(code, 82, text)
        self.assertIn("none of the %d checkpoints" % len(before), text)
        self.assertEqual(self.folders(job), before)

    def test_store_fails_for_a_while(self):
        """Saves that fail lose nothing: training goes on, and the last one is tried again."""
        for fault in ("store.put.half=enospc@9", "store.put.before=eio@12", "checkpoint.manifest.before=eio@3"):
            with self.subTest(fault):
                job = self.lab.job("store-" + fault.split("=")[0].replace(".", "-"), **SHORT)
                code, text = self.lab.train(job, fault=fault)
                self.assertEqual(code, 0, text)
                self.assertIn("failed", text)
                self.check_same(self.outcome(job), self.reference, fault)

    def test_store_full_of_our_own_checkpoints(self):
        """A life that dies before it removes anything leaves one too many. The next one removes it before its first save,
        and saves that fail for want of room remove what a lower keep_last gives up, and nothing else."""
        job = self.lab.job("store-full", checkpoint__local_dir=self.lab.path("store-full-local"),
                           **dict(SHORT, checkpoint__keep_last=4))

        def copies():
            return sorted(name for _, names, _ in os.walk(job["checkpoint"]["local_dir"]) for name in names
                          if name.startswith("step-"))
        code, text = self.lab.train(job, fault="checkpoint.settle=kill@6,loop.compute=slow@*")
        self.assertEqual(code, -signal.SIGKILL, text)
        before = self.folders(job)
        self.assertEqual(len(before), 5)  # the fifth goes after the commit that it did not hear of
        self.assertEqual(copies(), sorted(before)[2:])
        code, text = self.lab.train(job, fault="loop.compute=kill")
        self.assertEqual(code, -signal.SIGKILL, text)
        self.assertEqual(copies(), sorted(before)[3:])  # what it goes on from, and the one before
        code, text = self.lab.train(job, fault="checkpoint.object=kill")
        self.assertEqual(code, -signal.SIGKILL, text)
        whole = [os.path.basename(os.path.dirname(path)) for path, _ in self.lab.manifests(job)]
        self.assertEqual(whole, sorted(before)[1:])
        job["checkpoint"]["keep_last"] = 3
        code, text = self.lab.train(job, fault="checkpoint.object=enospc@*,saver.patience=eio@*")
        self.assertEqual(code, 83, text)
        self.assertRegex(text, r"MB free now, a checkpoint has \d+\.\d MB")
        self.assertEqual(self.folders(job), before[:3])
        code, text = self.lab.train(job, fault="checkpoint.object=enospc")
        self.assertEqual(code, 0, text)
        self.check_same(self.outcome(job), self.reference, "full")
        self.assertEqual(len(self.folders(job)), 3)

    def test_failure_between_two_steps(self):
        """A save fails while a step is computed at whose end the next save is due: it is told all the same."""
        job = self.lab.job("store-between", **dict(SHORT, checkpoint__every_steps=1))
        code, text = self.lab.train(job, fault="checkpoint.manifest.before=eio@3,loop.compute=slow@*")
        self.assertEqual(code, 0, text)
        self.assertIn("the checkpoint of step 3 failed, training goes on", text)
        self.check_same(self.outcome(job), self.reference, "between")


if __name__ == "__main__":
    unittest.main(verbosity=2)
