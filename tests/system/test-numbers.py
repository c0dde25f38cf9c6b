#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sdctl job metrics` of jobs in a cluster: all rows in each format, and with --follow each as its checkpoint brings it,
once, across a failure."""
import csv
import io
import json
import os
import signal
import struct
import subprocess
import unittest

from lab import LabCase


def records(path):
    """The payloads of an event file; checksums are test-event-file's."""
    with open(path, "rb") as file:
        data = file.read()
    found = []
    while data:
        (n,) = struct.unpack_from("<Q", data)
        found.append(data[12:12 + n])
        data = data[16 + n:]
    return found


class Numbers(LabCase):
    def setUp(self):
        self.lab.forget_faults()
        self.cluster = self.lab.cluster(nodes=2)
        self.addCleanup(self.cluster.down)

    def follow(self, job):
        process = subprocess.Popen([self.lab.path("bin", "sdctl"), "job", "metrics", job["name"], "-f", "--etcd", self.cluster.etcd,
                                    "--cluster", "dev"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_formats_and_follow(self):
        self.cluster.fault("node1", "loop.compute=kill@50")
        job = self.lab.job("told")
        self.cluster.submit(job)
        follower = self.follow(job)
        rows = [json.loads(line) for line in follower.communicate(timeout=180)[0].splitlines()]
        self.assertEqual(follower.returncode, 0)
        self.cluster.wait(job, "succeeded")
        self.assertEqual([row["step"] for row in rows], list(range(1, 41)))
        with open(os.path.join(job["checkpoint"]["uri"], "metrics.jsonl")) as file:
            kept = [json.loads(line) for line in file]
        for row, line in zip(rows, kept):
            self.assertEqual((row["loss"], row["grad_norm"], row["learning_rate"]),
                             (line["loss"], line["grad_norm"], line["lr"]))
            self.assertNotIn("samples_per_s", line)  # which is compared and united, so it tells no time
            self.assertGreater(row["samples_per_s"], 0)
        times = [row["wall_time"] for row in rows]
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[-1], 1.6e9)

        again = [json.loads(line) for line in self.cluster.ctl("job", "metrics", "told").splitlines()]
        self.assertEqual([{**row, "wall_time": 0} for row in again], [{**row, "wall_time": 0} for row in rows])
        for _, manifest in self.lab.manifests(job):  # the times of steps that were taken back are gone
            first, n_steps, width, *usec = (int(word) for word in manifest["step_times"].split())
            self.assertEqual((first, n_steps, width, len(usec)), (1, manifest["step"], 1, manifest["step"]))
        self.assertEqual([row["samples_per_s"] for row in rows],
                         [float("%.9g" % (job["train"]["global_batch"] / (t * 1e-6))) for t in usec])
        table = list(csv.DictReader(io.StringIO(self.cluster.ctl("job", "metrics", "told", "-o", "csv"))))
        self.assertEqual([float(row["loss"]) for row in table], [row["loss"] for row in rows])
        for _ in range(2):  # the second time in the place of the first
            self.cluster.ctl("job", "metrics", "told", "-o", "tensorboard", "--out", self.lab.path("board"))
        code, text = self.cluster.ctl_code("job", "metrics", "told", "-o", "tensorboard", "--out", "/proc/none")
        self.assertEqual(code, 3, text)
        self.assertIn("/proc/none", text)
        (name,) = os.listdir(self.lab.path("board"))
        self.assertIn("tfevents", name)
        events = records(self.lab.path("board", name))
        self.assertEqual(len(events), 41)
        self.assertTrue(events[0].endswith(b"brain.Event:2"))
        for tag in (b"loss", b"grad_norm", b"learning_rate", b"samples_per_s"):
            self.assertIn(tag, events[40])

    def test_an_interrupt_ends_it_after_whole_rows(self):
        job = self.lab.job("long", train__steps=100000)
        self.cluster.submit(job)
        follower = self.follow(job)
        first = follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        lines = (first + follower.stdout.read()).splitlines()
        self.assertEqual(follower.wait(timeout=60), -signal.SIGINT)
        steps = [json.loads(line)["step"] for line in lines]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.cluster.ctl("job", "stop", "long")
        self.cluster.wait(job, "stopped")

    def test_words_for_what_cannot_be(self):
        for arguments, code, says in ((("-o", "xml"), 2, 'jsonl, csv or tensorboard, not "xml"'),
                                      (("-o", "tensorboard"), 2, "-o tensorboard needs --out FOLDER"),
                                      ((), 3, "no job none")):
            found, text = self.lab.run(self.lab.path("bin", "sdctl"), "job", "metrics", "none", *arguments, "--etcd",
                                       self.cluster.etcd, "--cluster", "dev")
            self.assertEqual(found, code, text)
            self.assertIn(says, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
