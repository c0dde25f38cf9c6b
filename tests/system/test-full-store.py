#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints on a disk with room for three of them: what a rank that died did not remove makes way for the next one,
and what others fill is told before a save is due, and named when it fails."""
import json
import os
import signal
import subprocess
import unittest

from lab import LabCase, until

PACE = "SDTRAIN_FAULT=loop.compute=slow@*"  # 100 ms a grain, at no cost of a processor
SHORT = dict(train__steps=40, checkpoint__keep_last=2)


class FullStore(LabCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        job = cls.lab.job("reference", **SHORT)
        cls.reference = cls.lab.reference(job)
        folder = os.path.dirname(cls.lab.manifests(job)[-1][0])
        cls.kib = int(subprocess.run(["du", "-sk", folder], stdout=subprocess.PIPE, check=True).stdout.split()[0])

    def disk(self, name, n_checkpoints):
        folder = self.lab.path(name)
        os.makedirs(folder)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dk" % int(self.kib * n_checkpoints), "tmpfs", folder],
                          stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no right to mount")
        self.lab.undo("umount", folder)
        return folder

    def begin(self, name, n_checkpoints, **changes):
        self.disk_folder = self.disk(name + "-disk", n_checkpoints)
        self.cluster = self.lab.cluster(nodes=2, trainers=(PACE,))
        self.addCleanup(self.cluster.down)
        return self.lab.job(name, checkpoint__uri=os.path.join(self.disk_folder, name), **dict(SHORT, **changes))

    def end(self, job):
        self.cluster.wait(job, "succeeded", 180)
        self.assertEqual(self.cluster.status(job)["checkpoint"]["digest"], self.reference.digest)
        self.assertEqual(self.lab.metrics(job), self.reference.metrics)
        self.assertEqual(len(self.lab.manifests(job)), 2)

    def test_our_own_old_checkpoints_make_way(self):
        """Rank 0 is killed when its third commit is told, before it has removed the first checkpoint: the disk is full."""
        job = self.begin("own", 3.6)
        self.cluster.fault("node1", "checkpoint.settle=kill@3")
        self.cluster.submit(job)
        until(lambda: self.cluster.status(job)["generation"] == 2, "generation 2", 60)
        self.end(job)
        self.assertEqual([i["cause"] for i in self.cluster.status(job)["incidents"]], ["trainer-died"])

    def test_what_others_fill_is_told(self):
        """Before the save is due; when it fails; and no more once there is room."""
        job = self.begin("others", 5, checkpoint__every_steps=10)
        self.cluster.submit(job)

        def room():
            store = self.cluster.status(job)["store"]
            return store if store["next_bytes"] else None
        until(lambda: (room() or {"free_bytes": -1})["free_bytes"] >= 0, "what is free", 60)
        self.assertRegex(self.cluster.ctl("job", "status", job["name"]), r"  store: [\d.]+ MB free, the next checkpoint has")
        ballast = os.path.join(self.disk_folder, "ballast")
        with open(ballast, "ab", buffering=0) as file:
            try:
                while file.write(b"x" * 4096) == 4096:
                    pass
            except OSError:
                pass
        until(lambda: room()["free_bytes"] < room()["next_bytes"], "a disk that is too full", 60)
        self.assertIn(" MB are missing: ", self.cluster.ctl("job", "status", job["name"]))
        code, text = self.cluster.ctl_code("doctor", "-o", "json")
        rows = [row for row in json.loads(text[:text.rindex("}") + 1])["findings"] if row["check"] == "room"]
        self.assertEqual([row["state"] for row in rows], ["wrong"], text)

        def trouble(resolved):
            return next((i for i in self.cluster.status(job)["incidents"]
                         if i["cause"] == "store-trouble" and i["resolved"] == resolved), None)
        incident = until(lambda: trouble(False), "the incident", 90)
        self.assertRegex(incident["evidence"], r"MB are missing in file:///.* lower checkpoint.keep_last \(2\)")
        text = self.cluster.ctl("cluster", "status")
        self.assertIn("training goes on unsaved: free what it names in checkpoint.uri", text)
        self.assertNotIn("recovers by itself", text)
        os.unlink(ballast)
        until(lambda: trouble(True), "the end of the trouble", 120)
        self.end(job)
        self.assertEqual(self.cluster.status(job)["generation"], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
