#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints on a real S3 server, by the real programs: killed and started again with copies on the node's own disk,
which are damaged in between; sampled, exported and reported from there.

Needs an S3 server: tests/s3/with-gateway tests/system/test-checkpoint-store.py
"""
import hashlib
import json
import os
import re
import signal
import sys
import unittest

import dataset
from encoded import MODEL
from lab import BIN, SOURCE, UNET, LabCase

sys.path.insert(0, os.path.join(SOURCE, "tests/s3"))

import s3client  # noqa: E402

SHORT = dict(train__steps=12, checkpoint__every_steps=2, checkpoint__keep_last=2, train__ema={"start_step": 4})


class Store(LabCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.uri = os.environ["SDTRAIN_TEST_S3_URI"]
        cls.client = s3client.Client.of_environment()
        cls.reference = cls.lab.reference(cls.lab.job("reference", **SHORT))

    def s3_job(self, name, **changes):
        return self.lab.job(name, checkpoint__uri="%s/%s" % (self.uri, name), **dict(SHORT, **changes))

    def keys(self, job):
        bucket, prefix = s3client.split(job["checkpoint"]["uri"])
        return self.client.list(bucket, prefix + "/")

    def check_tidy(self, job):
        """Two checkpoints, the history's metrics, and no upload that was begun and not ended."""
        names = [key[len(job["name"]) + 1:] for key in self.keys(job)]
        self.assertEqual(sum(name.endswith("/manifest.json") for name in names), 2)
        self.assertEqual(len({name.split("/")[0] for name in names if name.startswith("step-")}), 2)
        bucket, prefix = s3client.split(job["checkpoint"]["uri"])
        self.assertEqual(list(self.client.uploads(bucket, prefix)), [])

    def check_ended(self, job, text):
        self.assertIn("step=12 digest=%s" % self.reference.digest, text)
        bucket, prefix = s3client.split(job["checkpoint"]["uri"])
        lines = [json.loads(line) for line in self.client.get(bucket, prefix + "/metrics.jsonl").decode().splitlines()]
        self.assertEqual(lines, self.reference.metrics)
        self.check_tidy(job)

    def local_files(self, job):
        return [os.path.join(folder, name) for folder, _, names in os.walk(job["checkpoint"]["local_dir"])
                for name in names if name != "lock"]

    def test_killed_and_restored_from_its_own_disk(self):
        job = self.s3_job("killed", checkpoint__local_dir=self.lab.path("local"))
        # The first and the last save are always made; those between only if the one before is done.
        code, text = self.lab.train(job, fault="checkpoint.manifest.before=kill@2")
        self.assertEqual(code, -signal.SIGKILL, text)
        self.assertTrue(self.local_files(job))
        code, text = self.lab.train(job, fault="checkpoint.settle=kill@1")
        self.assertEqual(code, -signal.SIGKILL, text)
        some, whole = re.search(r"([0-9.]+) of ([0-9.]+) MB came from this node's copies", text).groups()
        self.assertEqual(some, whole)
        self.assertGreater(float(some), 0)
        for path in self.local_files(job):  # every copy lies
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) // 2)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 1]))
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        self.assertIn("the local copy is bad", text)
        self.check_ended(job, text)
        self.assertEqual(self.local_files(job), [])  # a finished job needs none

    def test_one_owner(self):
        """In S3 there are no locks: a run does not take over by itself, not even from its own earlier life."""
        job = self.s3_job("owned")
        code, text = self.lab.train(job, fault="checkpoint.manifest.before=kill@2")
        self.assertEqual(code, -signal.SIGKILL, text)
        before = self.keys(job)
        for _ in range(2):
            code, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "run", "--job", self.lab.job_file(job))
            self.assertEqual(code, 86, text)
            self.assertIn("belongs to sdtrainer run of job owned", text)
            self.assertEqual(self.keys(job), before)
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        self.check_ended(job, text)

    def test_a_run_that_has_ended_well(self):
        """It says so, and the next run of it needs no word; one that is killed meanwhile does."""
        run = os.path.join(BIN, "sdtrainer"), "run", "--job"
        short = self.s3_job("ended", train__steps=6)
        code, text = self.lab.run(*run, self.lab.job_file(short))
        self.assertEqual(code, 0, text)
        job = self.s3_job("ended")  # the same, with more steps
        code, text = self.lab.run(*run, self.lab.job_file(job), fault="checkpoint.manifest.before=kill@1")
        self.assertEqual(code, -signal.SIGKILL, text)
        code, text = self.lab.run(*run, self.lab.job_file(job))
        self.assertEqual(code, 86, text)
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        self.check_ended(job, text)
        code, text = self.lab.run(*run, self.lab.job_file(job))  # nothing is left to do
        self.assertEqual(code, 0, text)

    def test_read_by_the_other_programs(self):
        cluster = self.lab.cluster(nodes=2)
        self.addCleanup(cluster.down)
        job = self.s3_job("read", world={"min": 2, "max": 2})
        cluster.submit(job)
        cluster.wait(job, "succeeded", 90)
        checkpoint = cluster.status(job)["checkpoint"]
        self.assertEqual(checkpoint["digest"], self.reference.digest)
        self.assertTrue(checkpoint["uri"].startswith(job["checkpoint"]["uri"] + "/step-0000000012-"))
        weights, report = self.lab.path("read.safetensors"), self.lab.path("read.html")
        cluster.ctl("job", "export", "read", "--out", weights)
        self.assertGreater(os.path.getsize(weights), 1000)
        cluster.ctl("job", "report", "read", "--out", report)
        with open(report) as file:
            self.assertNotIn("No checkpoint with metrics", file.read())
        code, text = cluster.ctl_code("job", "start", "-f", self.lab.job_file(dict(job, name="again")))
        self.assertNotEqual(code, 0)
        self.assertIn("holds checkpoints already", text)
        # Weights, then a whole checkpoint, of another run as a beginning.
        for name, init in (("from-weights", self.uri + "/read/" + self.weights_of(job)),
                           ("from-checkpoint", {"checkpoint": checkpoint["uri"], "optimizer": True})):
            code, text = self.lab.train(self.s3_job(name, train__steps=1, model__init=init))
            self.assertEqual(code, 0, text)
        picture = self.lab.path("read.png")
        code, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "sample", "--job", self.lab.job_file(job), "--out",
                                  picture, "--samples", "1", "--steps", "2")
        self.assertEqual(code, 0, text)
        self.assertGreater(os.path.getsize(picture), 100)

    def test_memory_of_a_small_job(self):
        """Data and checkpoints lie elsewhere: the plan is never less than what a rank had resident, and little more."""
        self.client.put_folder(self.lab.path("data"), self.uri + "/data")
        job = self.s3_job("planned", data__streams=[{"uri": self.uri + "/data"}])
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        measured = float(re.search(r"memory of rank 0 of 1: at most ([\d.]+) MiB", text).group(1))
        code, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "plan", "--job", self.lab.job_file(job), "--ranks", "1")
        self.assertEqual(code, 0, text)
        planned = float(re.search(r"^sum +([\d.]+)$", text, re.M).group(1))
        print("planned %.0f MiB, measured %.0f" % (planned, measured), flush=True)
        self.assertGreaterEqual(planned, measured)
        self.assertLessEqual(planned, measured + 64)

    def test_a_model_in_s3(self):
        """Pictures, captions and a pipeline by a model that no file holds: as by the same model's folder."""
        dataset.write(self.lab.path("latents"), 8, 1, latents=(4, 8, 8), text=(77, 64))
        config = self.lab.write("wide.json", json.dumps(dict(UNET, cross_attention_dim=64)))
        job = self.s3_job("modelled", model__config=config)
        job["data"].update(streams=[{"uri": self.lab.path("latents")}], empty_text=self.lab.path("latents/empty.npy"))
        cluster = self.lab.cluster(nodes=1)
        self.addCleanup(cluster.down)
        cluster.submit(job)
        cluster.wait(job, "succeeded", 90)
        self.client.put_folder(MODEL, self.uri + "/model")
        found = []
        for i, model in enumerate((MODEL, self.uri + "/model")):
            out, pipeline = self.lab.path("modelled%d.png" % i), self.lab.path("pipeline%d" % i)
            cluster.ctl("job", "sample", "modelled", "--out", out, "--model", model, "--samples", "1", "--caption", "a cat")
            cluster.ctl("job", "export", "modelled", "--pipeline", pipeline, "--model", model)
            files = [os.path.join(folder, name) for folder, _, names in os.walk(pipeline) for name in names]
            self.assertEqual(len(files), 12)
            found.append([])
            for path in [out] + sorted(files):
                with open(path, "rb") as file:
                    found[i].append(hashlib.sha256(file.read()).hexdigest())
        self.assertEqual(*found)

    def weights_of(self, job):
        return max(key[len(job["name"]) + 1:] for key in self.keys(job)
                   if key.endswith("unet/diffusion_pytorch_model.safetensors"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
