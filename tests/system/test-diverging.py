#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A loss that explodes, in clusters: the incident `diverging`, which ends the job only if its file says so, and is the
same in a history with failures."""
import unittest

from lab import LabCase

# A learning rate that no network stands. It is finite all the time.
WILD = dict(train__steps=30, train__optimizer={"lr": 3.0, "warmup_steps": 0, "clip_norm": 0}, checkpoint__keep_last=16)


class Divergence(LabCase):
    def setUp(self):
        self.lab.forget_faults()
        self.cluster = self.lab.cluster(nodes=2)
        self.addCleanup(self.cluster.down)

    def judged(self, job):
        """{step: what the manifest of that step keeps of the judgement}"""
        return {manifest["step"]: manifest["divergence"] for _, manifest in self.lab.manifests(job)}

    def test_job_goes_on_and_says_so(self):
        """Killed in the middle, it judges as one that never was."""
        reference = self.lab.reference(self.lab.job("reference", **WILD))
        self.cluster.fault("node1", "loop.compute=kill@25")
        job = self.lab.job("wild", **WILD)
        self.cluster.submit(job)
        self.check_same(self.cluster.finish(job), reference, "wild")
        status = self.cluster.status(job)
        self.assertRegex(status["reason"], "^finished, but training has diverged since step [0-9]+: the loss is ")
        causes = [(i["cause"], i["resolved"]) for i in status["incidents"]]
        self.assertIn(("diverging", True), causes)
        self.assertIn(("trainer-died", True), causes)
        whole = self.judged(self.lab.job("reference", **WILD))
        self.assertEqual(self.judged(job)[30], whole[30])

    def test_job_stops_if_asked(self):
        job = self.lab.job("stops", train__stop_if_diverging=True, **dict(WILD, train__steps=100000))
        self.cluster.submit(job)
        self.cluster.wait(job, "failed")
        status = self.cluster.status(job)
        self.assertRegex(status["reason"], "^diverging since step [0-9]+: the loss is ")
        self.assertEqual([i["cause"] for i in status["incidents"]], ["diverging"])
        self.assertFalse(status["incidents"][0]["resolved"])
        self.assertEqual(status["generation"], 1)
        uri = status["reason"].split(", model.init ")[1]
        after = self.lab.job("after", model__init={"checkpoint": uri}, train__optimizer={"lr": 1e-5, "warmup_steps": 0})
        self.cluster.submit(after)
        self.cluster.wait(after, "succeeded")
        self.assertEqual(self.cluster.status(after)["reason"], "finished")


if __name__ == "__main__":
    unittest.main(verbosity=2)
