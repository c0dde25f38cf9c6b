#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""etcd is restored from a snapshot while a job trains: revisions go back, and what was committed since is in no record.
Every program begins anew, the next world lies beyond all that ran, and no checkpoint is lost."""
import os
import shutil
import subprocess
import unittest

from lab import LabCase, until


class RestoredEtcd(LabCase):
    def etcdctl(self, *arguments):
        done = subprocess.run(["etcdctl", "--endpoints", self.cluster.etcd, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, env=dict(os.environ, ETCDCTL_API="3"))
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def commits(self, job):
        return self.cluster.status(job)["checkpoint"]["step"]

    def saved(self, job):
        return max([manifest["step"] for _, manifest in self.lab.manifests(job)] or [-1])

    def restore(self, snapshot):
        data = os.path.join(self.cluster.folder, "etcd", "data")
        self.cluster.kill("etcd")
        shutil.rmtree(data)
        self.etcdctl("snapshot", "restore", snapshot, "--data-dir", data)
        self.cluster.start("etcd")

    def log(self, name):
        with open(os.path.join(self.cluster.folder, name, "log")) as file:
            return file.read()

    def test_restored_while_a_job_trains(self):
        reference = self.lab.reference(self.lab.job("reference", train__steps=80))
        self.cluster = self.lab.cluster(nodes=3, judged=False)
        self.addCleanup(self.cluster.down)
        for node in ("node1", "node2", "node3"):
            self.cluster.fault(node, *["loop.compute=slow@*"] * 6)
        job = self.lab.job("restored", train__steps=80, checkpoint__every_steps=5, checkpoint__keep_last=3,
                           recovery={"max_failures_at_same_step": 3, "grow_interval_s": 0})
        self.cluster.submit(job)
        until(lambda: self.saved(job) >= 5, "a checkpoint")
        self.etcdctl("snapshot", "save", self.lab.path("snapshot"))
        until(lambda: self.saved(job) >= 20, "later checkpoints")
        generation, most = self.cluster.status(job)["generation"], self.saved(job)
        self.restore(self.lab.path("snapshot"))
        for name in ("node1", "node2", "node3", "controller1"):
            until(lambda: "etcd has another history" in self.log(name), name + " sees it")

        def goes_on():
            code, _ = self.cluster.ctl_code("job", "status", "restored")
            return code == 0 and self.cluster.status(job)["generation"] > generation
        until(goes_on, "a world beyond")
        outcome = self.cluster.finish(job, timeout=240)
        self.check_same(outcome, reference, "restored")
        steps = [world["step"] for world in self.worlds(job)]
        self.assertGreaterEqual(max(steps), most, "the world after it goes on from step %s, of %d" % (steps, most))

    def worlds(self, job):
        import base64
        import json
        kvs = json.loads(self.etcdctl("get", "/sdtrain/dev/phases/" + job["name"], "-w", "json"))["kvs"]
        return json.loads(base64.b64decode(kvs[0]["value"]))["worlds"]


if __name__ == "__main__":
    unittest.main(verbosity=2)
