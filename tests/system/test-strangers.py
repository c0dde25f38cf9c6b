#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Somebody else writes the record of a node: it is put back while the node's own lease lives, and waited for otherwise. A node
begins again whatever its clock says."""
import json
import os
import time
import unittest

from lab import BIN, LabCase, until

KEY = "/sdtrain/dev/nodes/node1"
CLOCK = os.path.abspath(os.path.join(BIN, "clock-step.so"))
LEASE_SEC = 2  # of sdctl dev


class Strangers(LabCase):
    def setUp(self):
        self.cluster = self.lab.cluster(nodes=1, slots=2, judged=False)
        self.addCleanup(self.cluster.down)
        until(self.record, "the node's record")

    def etcdctl(self, *arguments):
        code, text = self.lab.run("etcdctl", "--endpoints", self.cluster.etcd, *arguments)
        self.assertEqual(code, 0, text)
        return text

    def grant(self):
        """Its id as our programs write it: etcdctl has zeros in front."""
        return "%x" % int(self.etcdctl("lease", "grant", "600").split()[1], 16)

    def put(self, lease, record):
        """Returns the revision."""
        text = self.etcdctl("put", "-w", "json", "--lease=" + lease, KEY, json.dumps(record))
        return json.loads(text)["header"]["revision"]

    def key(self):
        """The key as it is: its value, its lease in hex, how often it was written since it was made."""
        kvs = json.loads(self.etcdctl("get", "-w", "json", KEY)).get("kvs")
        return kvs and dict(kvs[0], lease="%x" % kvs[0].get("lease", 0))

    def record(self):
        text = self.etcdctl("get", "--print-value-only", KEY).strip()
        return text and json.loads(text)

    def wrong(self):
        code, text = self.cluster.ctl_code("cluster", "status", "-o", "json")
        return json.loads(text)["wrong"]

    def contested(self):
        return [text for text in self.wrong() if "node-contested" in text]

    def log(self):
        with open(os.path.join(self.cluster.folder, "node1", "log"), errors="replace") as file:
            return file.read()

    def job(self, name, **changes):
        return self.lab.job(name, train__steps=100000, checkpoint__every_steps=1000, world__min=1, world__max=1,
                            recovery={"grow_interval_s": 0}, **changes)

    def test_a_node_that_runs(self):
        """Its record is somebody else's again and again; its rank runs on, in the same world."""
        job, late = self.job("job"), self.job("late")
        self.cluster.submit(job)
        self.cluster.wait(job, "running")
        pid = self.cluster.rank_on(job, "node1")["pid"]
        own = self.record()
        lease = self.grant()
        forged = dict(own, incarnation=own["incarnation"] + 10**9, address="10.9.9.9", verdict="isolate", evidence="so it says")
        revision = self.put(lease, forged)
        back = until(lambda: (lambda r: r if r["incarnation"] == own["incarnation"] else None)(self.record()),
                     "the record, put back")
        self.assertEqual((back["address"], back["verdict"], back["job"]), (own["address"], "healthy", "job"))
        self.assertEqual(("%x" % back["stranger_lease"], back["stranger_revision"]), (lease, revision))
        self.assertNotEqual(self.key()["lease"], lease)
        text = until(self.contested, "the incident")[0]
        self.assertIn("node-contested on node1: another writer has put nodes/node1, under lease %s, at revision %d," %
                      (lease, revision), text)
        self.cluster.submit(late)
        until(lambda: "node1 is contested" in self.cluster.ctl("job", "status", "late"), "why it gets no ranks")

        # much faster than the record is put back, and with other words
        forged.update(state="left")
        version, began, n = self.key()["version"], time.monotonic(), 0
        while time.monotonic() < began + 3 * LEASE_SEC:
            self.put(lease, forged)
            n += 1
        passed = time.monotonic() - began
        until(lambda: self.record()["incarnation"] == own["incarnation"], "the record, put back at last")
        self.assertLessEqual(self.key()["version"] - version - n, passed + 3, "how often it was put back")
        self.assertGreaterEqual(self.key()["version"] - version - n, 2, "how often it was put back")
        status = self.cluster.status(job)
        self.assertEqual((status["incidents"], status["phase"], status["generation"]), ([], "running", 1))
        self.assertEqual(self.cluster.rank_on(job, "node1")["pid"], pid)
        self.assertEqual(self.cluster.status(late)["generation"], 0)

        self.etcdctl("lease", "revoke", lease)
        until(lambda: not self.contested(), "the incident's end", 60)
        self.assertEqual(self.record()["stranger_revision"], 0)
        self.cluster.wait(late, "running")
        self.assertEqual(self.cluster.rank_on(job, "node1")["pid"], pid)
        self.assertEqual(self.cluster.status(job)["generation"], 1)
        code, text = self.cluster.ctl_code("simulate", os.path.join(self.cluster.folder, "controller1", "events.jsonl"))
        self.assertEqual(code, 0, text)
        self.assertIn("each as it was decided then", text)

    def test_a_node_that_begins(self):
        """Another one's lease lives: the daemon waits, says so, and has no say about the name."""
        own = self.record()
        self.cluster.kill("node1")
        until(lambda: not self.record(), "the end of its lease", 30)
        lease = self.grant()
        revision = self.put(lease, dict(own, machine_id="f" * 32, address="10.9.9.9"))
        self.etcdctl("del", "/sdtrain/dev/health/node1")
        self.cluster.start("node1")
        until(lambda: "is held under lease %s, by machine %s at 10.9.9.9" % (lease, "f" * 32) in self.log(), "its word")
        time.sleep(2 * LEASE_SEC)
        self.assertEqual(self.key()["mod_revision"], revision)
        self.assertEqual(self.etcdctl("get", "/sdtrain/dev/health/node1"), "")
        self.etcdctl("lease", "revoke", lease)
        until(lambda: (lambda r: r and r["machine_id"] == own["machine_id"])(self.record()), "the node's record")
        until(lambda: self.etcdctl("get", "/sdtrain/dev/health/node1"), "its health")
        self.assertEqual(self.log().count("is held under lease"), 1)

    @unittest.skipUnless(os.path.exists(CLOCK), "no library can be preloaded here")
    def test_a_clock_that_was_set_back(self):
        """The daemon is killed and begins again, an hour earlier by its clock, while the lease of its last life lives."""
        own = self.record()
        first = self.key()["lease"]
        kept = self.lab.environment
        self.addCleanup(setattr, self.lab, "environment", kept)
        self.cluster.kill("node1")
        self.lab.environment = dict(kept, LD_PRELOAD=CLOCK, CHAOS_CLOCK=self.lab.write("clock", "-3600"))
        self.cluster.start("node1")
        again = until(lambda: (lambda r: r if r and r["incarnation"] != own["incarnation"] else None)(self.record()),
                      "the next life's record")
        self.assertLess(again["incarnation"], own["incarnation"])
        self.assertEqual(again["stranger_revision"], 0)
        self.assertNotEqual(self.key()["lease"], first)
        self.assertNotIn("is held under lease", self.log())
        job = self.job("after")
        self.cluster.submit(job)
        self.cluster.wait(job, "running")


if __name__ == "__main__":
    unittest.main(verbosity=2)
