#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fatal word of the kernel, from the log to the same bits without its node, and the way back in."""
import os
import unittest

from lab import LabCase, until


class Health(LabCase):
    def test_xid_isolates_until_a_good_check(self):
        """The world goes on without the node at once; the node is let in when its check finds nothing."""
        cluster = self.lab.cluster(3, patient=["node1", "node2", "node3"])
        self.addCleanup(cluster.down)
        log = os.path.join(cluster.folder, "kmsg")
        os.mkfifo(log)
        kernel = os.open(log, os.O_RDWR)
        self.addCleanup(os.close, kernel)
        # a memory of its own: the real log's numbers are higher, and would count as read
        cluster.configure("node3", kernel_log=log, state_dir=os.path.join(cluster.folder, "state3"))
        reference = self.lab.reference(self.lab.job("reference", train__steps=60))
        job = self.lab.job("xid", train__steps=60, world={"min": 1, "max": 3},
                           recovery={"max_failures_at_same_step": 3, "grow_interval_s": 0})
        cluster.fault("node1", "loop.compute=stop@15")  # the job cannot end before the word is heard
        cluster.submit(job)
        self.lab.stopped()
        os.write(kernel, b"4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
        until(lambda: cluster.status(job)["incidents"], "the incident")
        self.assertIn("node node3", cluster.ctl("cluster", "status"))
        code, text = cluster.ctl_code("node", "uncordon", "node3")
        self.assertEqual(code, 1, text)
        self.assertIn("its check says: isolate: kernel-log: Xid 79", text)
        self.assertIn("cleared by a reboot", cluster.ctl("node", "status", "node3"))
        cluster.ctl("node", "check", "node3", "--clear")  # the GPU was reset
        cluster.ctl("node", "uncordon", "node3")
        self.check_same(cluster.finish(job), reference, "xid")
        status = cluster.status(job)
        self.assertEqual([(i["cause"], i["node"]) for i in status["incidents"]], [("node-unhealthy", "node3")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
