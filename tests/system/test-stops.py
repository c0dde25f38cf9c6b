#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Failures that no retry can help, in clusters: a loss that is not finite, a device that fails, a step that kills
whoever trains it. The job ends with its cause, and what had been saved stays."""
import json
import os
import unittest

from lab import LabCase


class Stops(LabCase):
    def setUp(self):
        self.lab.forget_faults()
        self.cluster = self.lab.cluster(nodes=3)
        self.addCleanup(self.cluster.down)

    def logs(self, job, generation):
        """{rank: the text that its trainer wrote}"""
        found = {}
        for node in ("node1", "node2", "node3"):
            folder = os.path.join(self.cluster.folder, node, "logs", job["name"], "g%d" % generation)
            for name in os.listdir(folder) if os.path.isdir(folder) else []:
                with open(os.path.join(folder, name), errors="replace") as file:
                    found[int(name[len("rank"):-len(".log")])] = file.read()
        return found

    def test_loss_that_is_not_finite(self):
        """Rank 0 has one grain a step and computes step 1 twice, so that its visit 13 is in step 12."""
        self.cluster.fault("node1", "loop.nan=eio@13")
        # Training waits for its save, so that step 10 is there although step 12 follows at once.
        job = self.lab.job("poisoned", world={"min": 3, "max": 3}, checkpoint__every_steps=10, checkpoint__blocking=True)
        self.cluster.submit(job)
        self.cluster.wait(job, "failed")
        status = self.cluster.status(job)
        self.assertEqual(status["generation"], 1, "it is never tried again")
        self.assertEqual(len(status["incidents"]), 1)
        incident = status["incidents"][0]
        self.assertEqual(incident["cause"], "non-finite-loss")
        self.assertIn("step 12", incident["evidence"])
        (sample,) = [row["name"] for row in self.lab.order(job, 12) if row["grain"] == "0"]
        self.assertIn(sample, incident["evidence"])
        self.assertIn("step 12", status["reason"])
        # Rank 0, whose grain it is, knows more than the others: it is quoted, whoever ended first.
        self.assertEqual((incident["rank"], incident["node"]), (0, "node1"))
        for text in (incident["evidence"], status["reason"]):
            self.assertIn("computed again, all of it is finite this time: the device wavers", text)
        # All ranks end alike, but the first one to say so ends the job, and with it who is still on its way out.
        states = {rank["rank"]: rank["state"] for rank in status["world"]["ranks"]}
        self.assertLessEqual(set(states.values()), {"non-finite", "signal"})
        self.assertIn("non-finite", states.values())
        for rank, text in self.logs(job, 1).items():
            if states[rank] == "non-finite":
                self.assertIn("step 12: the loss or gradient of grain 0 is not finite", text, rank)
        self.assertEqual(self.lab.manifests(job)[-1][1]["step"], 10)

    def test_device_fault(self):
        """The node is left out, and the job goes on without it."""
        job = self.lab.job("device")
        reference = self.lab.reference(self.lab.job("reference"))
        self.cluster.fault("node2", "loop.compute=eio@9")
        self.cluster.submit(job)
        self.check_same(self.cluster.finish(job), reference, "device")
        status = self.cluster.status(job)
        self.assertEqual([(i["cause"], i["node"]) for i in status["incidents"]], [("device-fault", "node2")])
        self.assertNotIn("node2", [rank["node"] for rank in status["world"]["ranks"]])
        code, text = self.lab.run("etcdctl", "--endpoints", self.cluster.etcd, "get", "--print-value-only",
                                  "/sdtrain/dev/cordons/node2")
        self.assertEqual(code, 0, text)
        self.assertEqual([(c["owner"], c["mode"]) for c in json.loads(text)["causes"]], [("machine", "quarantine")])

    def test_step_that_kills(self):
        """The same step in every world: after K failures the job ends, with its cause."""
        for node in ("node1", "node2", "node3"):
            self.cluster.fault(node, *["loop.compute=kill@2"] * 6)
        job = self.lab.job("crash-loop", recovery={"max_failures_at_same_step": 3, "grow_interval_s": 0},
                           checkpoint__every_steps=40)
        self.cluster.submit(job)
        self.cluster.wait(job, "failed")
        status = self.cluster.status(job)
        self.assertEqual(status["generation"], 3)
        self.assertEqual(len(status["incidents"]), 3)
        self.assertIn("3", status["reason"])
        self.assertIn("signal 9", status["reason"] + status["incidents"][-1]["evidence"])
        self.assertEqual(self.lab.manifests(job)[-1][1]["step"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
