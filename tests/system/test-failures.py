#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The promise with failures, in clusters: whatever dies, whenever, the job ends with the bits of the run that
nothing disturbed."""
import json
import os
import signal
import unittest

import dataset
from lab import LabCase, processes_of

# A trainer stops itself here, in the middle of a step, and the step cannot end before it goes on: so what a
# test does meanwhile happens in the middle of a pass, however fast or slow the machine is.
GATE = "loop.compute=stop@%d"


def go_on(pid):
    os.kill(pid, signal.SIGCONT)


class Failures(LabCase):
    latents = dataset.SMALL

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference = cls.lab.reference(cls.lab.job("reference"))

    def setUp(self):
        self.lab.forget_faults()

    def up(self, nodes=3, **options):
        self.cluster = self.lab.cluster(nodes=nodes, **options)
        self.addCleanup(self.cluster.down)

    def start(self, name, **changes):
        job = self.lab.job(name, **dict({"recovery": {"max_failures_at_same_step": 3, "grow_interval_s": 0}},
                                        **changes))
        self.cluster.submit(job)
        return job

    def finish(self, job):
        outcome = self.cluster.finish(job)
        self.check_same(outcome, self.reference, job["name"])
        return self.cluster.status(job)

    def test_trainer_dies(self):
        self.up()
        self.cluster.fault("node2", "loop.compute=kill@18")
        status = self.finish(self.start("trainer"))
        self.assertEqual([(i["node"], i["resolved"]) for i in status["incidents"]], [("node2", True)])
        self.assertIn("signal 9", status["incidents"][0]["evidence"])
        self.assertEqual(status["world"]["size"], 3)
        self.assertEqual(status["generation"], 2)

    def test_node_dies_and_returns(self):
        self.up(patient=["node1", "node3"])
        self.cluster.fault("node3", GATE % 15)
        job = self.start("node")
        first = self.lab.stopped()
        self.cluster.fault("node1", GATE % 8)
        self.cluster.kill("node2")  # in a step that cannot end without it
        second = self.lab.stopped(other_than=first)
        self.assertEqual(self.cluster.status(job)["world"]["size"], 2)
        self.cluster.start("node2")
        self.cluster.wait(job, "resizing")
        go_on(second)
        status = self.finish(job)
        self.assertEqual((status["world"]["size"], status["generation"]), (3, 3))
        self.assertEqual([i["node"] for i in status["incidents"]], ["node2"])

    def test_resize_there_and_back(self):
        self.up(patient=["node1", "node2", "node3"])
        self.cluster.fault("node3", GATE % 15)
        self.cluster.fault("node1", "", GATE % 8)
        job = self.start("resize")
        for size in (2, 3):
            pid = self.lab.stopped()
            self.cluster.ctl("job", "resize", job["name"], "--world", str(size))
            self.cluster.wait(job, "resizing")
            go_on(pid)
        status = self.finish(job)
        self.assertEqual((status["world"]["size"], status["generation"]), (3, 3))
        self.assertEqual(status["incidents"], [])

    def test_stop_and_go_on_elsewhere(self):
        self.up(patient=["node1", "node2", "node3"])
        self.cluster.fault("node1", GATE % 13)
        job = self.start("stop")
        pid = self.lab.stopped()
        self.cluster.ctl("job", "stop", job["name"])
        self.cluster.wait(job, "stopping")
        go_on(pid)
        self.cluster.wait(job, "stopped")
        step, manifest = (self.cluster.status(job)["checkpoint"][key] for key in ("step", "uri"))
        self.assertNotEqual(step % 5, 0, "it stopped where a save was due anyway")
        self.cluster.down()
        self.assertEqual(processes_of(self.lab.folder), [])

        self.up(nodes=2)
        code, text = self.cluster.ctl_code("job", "start", "-f", self.lab.job_file(job))
        self.assertEqual(code, 1, text)
        self.assertIn("--resume", text)
        self.cluster.submit(job, "--resume", manifest)
        self.assertEqual(self.finish(job)["incidents"], [])

    def test_lost_metrics(self):
        """A segment that somebody removes while the job trains: told, and the job succeeds."""
        self.up(nodes=2)
        self.cluster.fault("node1", GATE % 61)
        job = self.start("metrics")
        pid = self.lab.stopped()
        folder = os.path.join(job["checkpoint"]["uri"], "metrics")
        name = min(os.listdir(folder))
        first, last = (int(number) for number in name.split("-")[1:3])
        os.remove(os.path.join(folder, name))
        go_on(pid)
        self.cluster.wait(job, "succeeded")
        self.assertEqual(self.lab.digest(job), self.reference.digest)
        status = self.cluster.status(job)
        self.assertEqual(status["incidents"], [])
        self.assertEqual(status["metrics_lost"], {"steps": last - first + 1, "first": first, "last": last})
        self.assertIn("metrics of %d steps between %d and %d are lost" % (last - first + 1, first, last),
                      self.cluster.ctl("job", "status", job["name"]))
        self.cluster.ctl("job", "report", job["name"], "--out", self.lab.path("report.html"))
        with open(self.lab.path("report.html")) as file:
            self.assertIn("The metrics of %d steps between %d and %d are lost" % (last - first + 1, first, last), file.read())
        with open(os.path.join(job["checkpoint"]["uri"], "metrics.jsonl")) as file:
            steps = [json.loads(line)["step"] for line in file]
        self.assertEqual(steps, [step for step in range(1, 41) if not first <= step <= last])
    def test_goes_on_where_it_was_finished(self):
        """--resume into the folder of a job that is done, with more steps: its metrics.jsonl is replaced, and what it
        saved in later generations than this one's first does not keep retention from its work."""
        job = self.lab.job("more", train__steps=10)
        for steps in (10, 15):
            job["train"]["steps"] = steps
            self.assertEqual(self.lab.train(job)[0], 0)
        manifest, parsed = self.lab.manifests(job)[-1]
        self.assertEqual((parsed["step"], parsed["generation"] > 1), (15, True))
        job["train"]["steps"] = 40
        self.up(nodes=2)
        self.cluster.submit(job, "--resume", manifest)
        self.assertEqual(self.finish(job)["incidents"], [])
        self.assertEqual([m["step"] for _, m in self.lab.manifests(job)][-1], 40)
        self.assertLessEqual(len(self.lab.manifests(job)), 3)

    def test_controller_and_etcd_restart(self):
        self.up(patient=["node1"])
        self.cluster.fault("node1", GATE % 15)
        self.cluster.fault("node2", "", "data.read=kill")
        job = self.start("control")
        self.lab.stopped()
        victim = self.cluster.rank_on(job, "node3")["pid"]
        self.cluster.kill("controller1")
        self.cluster.kill("etcd")
        os.kill(victim, signal.SIGKILL)  # nobody is there to see it
        self.cluster.start("etcd")
        self.cluster.start("controller1")
        status = self.finish(job)
        self.assertGreaterEqual(status["generation"], 3)

    def test_two_at_once_and_one_while_recovering(self):
        self.up()
        self.cluster.fault("node1", "loop.compute=kill@9", "", "loop.compute=kill@9")
        self.cluster.fault("node2", "loop.compute=kill@9")
        self.cluster.fault("node3", "", "data.read=kill")
        status = self.finish(self.start("many"))
        self.assertGreaterEqual(status["generation"], 3)

    def test_dies_at_each_point(self):
        """Every world dies somewhere else; whoever is rank 0 must have visited most of the points."""
        self.up()
        self.cluster.configure("controller1", max_strikes=0)
        points = ["checkpoint.copied=kill@2", "checkpoint.object=kill@9", "checkpoint.gathered=kill@2",
                  "checkpoint.manifest.before=kill@2", "checkpoint.manifest.after=kill@2", "saver.saved=kill@2",
                  "checkpoint.settle=kill@2", "store.put.before=kill@9", "store.put.half=kill@9",
                  "store.put.after=kill@9", "checkpoint.retire.manifest=kill", "checkpoint.retire.object=kill",
                  "data.open=kill", "data.read=kill@3"]
        for node in ("node1", "node2", "node3"):
            self.cluster.fault(node, *points)
        job = self.start("points", checkpoint__every_steps=2,
                         recovery={"max_failures_at_same_step": 40, "grow_interval_s": 0})
        status = self.finish(job)
        self.assertGreater(status["generation"], len(points) // 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
