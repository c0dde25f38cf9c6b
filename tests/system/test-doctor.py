#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sdctl doctor` on a small cluster in which things are broken on purpose, one after the other, and mended again."""
import json
import os
import signal
import unittest

from lab import LabCase, until


class Doctor(LabCase):
    n_samples = 8

    def doctor(self, job, *options):
        """(exit code, {(check, state): [(places, what was found)]})"""
        code, text = self.cluster.ctl_code("doctor", "-f", self.lab.job_file(job), "-o", "json", *options)
        found = {}
        for one in json.loads(text)["findings"]:
            found.setdefault((one["check"], one["state"]), []).append((one["where"], one["found"]))
        return code, found

    def wrong(self, job, *options):
        """[(check, places, what was found)] of what is wrong."""
        code, found = self.doctor(job, *options)
        rows = [(check, *row) for (check, state), rows in found.items() if state == "wrong" for row in rows]
        self.assertEqual(code, 1 if rows else 0, rows)
        return rows

    def test_what_is_broken_is_named(self):
        cluster = self.cluster = self.lab.cluster(3, controllers=2)
        self.addCleanup(cluster.down)
        until(lambda: len(json.loads(cluster.ctl("node", "list", "-o", "json"))) == 3, "three nodes")
        job = self.lab.job("looked-at")
        os.makedirs(job["checkpoint"]["uri"])
        until(lambda: not self.wrong(job), "a cluster that is well")
        _, found = self.doctor(job)
        self.assertEqual([sorted(places) for places, _ in found["stores", "ok"]], [["here", "node1", "node2", "node3"]] * 2)
        self.assertEqual([sorted(places) for places, _ in found["lease_sec", "ok"]],
                         [["controller1", "controller2", "node1", "node2", "node3"]])
        self.assertEqual(os.listdir(job["checkpoint"]["uri"]), [])

        away = self.lab.job("away", data=self.lab.path("nowhere"), checkpoint__uri=self.lab.path("unet.json", "x"))
        checks = {(check, tuple(places)) for check, places, _ in self.wrong(away)}
        self.assertEqual(checks, {("stores", ("here",)), ("stores", ("node1", "node2", "node3"))})

        cluster.configure("node1", paths_write=[self.lab.path("elsewhere")])
        self.lab.write("options/node2", "--lease-sec 5")
        cluster.kill("node2")
        cluster.start("node2")
        self.lab.write("programs/node3.sdtrainer", "/bin/false")
        until(lambda: len(self.wrong(job)) == 3, "three things that are wrong")
        said = {check: (places, text) for check, places, text in self.wrong(job)}
        self.assertEqual(said["stores"][0], ["node1"])
        self.assertIn("not under paths_write of this node's sdtraind", said["stores"][1])
        self.assertEqual(said["lease_sec"], (["node2"], "5 s; the others have 2 s"))
        self.assertEqual(said["nodes"], (["node3"], "cannot look at itself: it said nothing"))

        os.remove(self.lab.path("programs/node3.sdtrainer"))
        pid = cluster.pid("node3")
        os.kill(pid, signal.SIGSTOP)
        rows = [row for row in self.wrong(job, "--timeout", "1") if row[0] == "nodes"]
        self.assertEqual([places for _, places, _ in rows], [["node3"]])
        self.assertRegex(rows[0][2], "does not answer within 1 s|is lost: its lease ran out")
        os.kill(pid, signal.SIGKILL)
        until(lambda: ("nodes", ["node3"], "is lost: its lease ran out") in self.wrong(job), "the node's loss")

        cluster.start("node3")
        self.lab.write("options/node2", "")
        cluster.kill("node2")
        cluster.start("node2")
        cluster.configure("node1", paths_write=[self.lab.folder])
        until(lambda: not self.wrong(job), "a cluster that is well again")


if __name__ == "__main__":
    unittest.main(verbosity=2)
