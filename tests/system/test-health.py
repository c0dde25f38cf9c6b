#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fatal word of the kernel, from the log to the same bits without its node, and the way back in. A cloud's notice, from
its endpoint to the same bits without the instance. A job that needs GPUs, on nodes without and with them."""
import http.server
import os
import signal
import threading
import unittest

from lab import BIN, LabCase, until


class Metadata:
    """An instance's metadata as AWS has them, whose notice comes when the test says so."""

    def __init__(self):
        told = self.told = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def reply(self, status, text=""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def do_PUT(self):
                self.reply(200, "a-token")

            def do_GET(self):
                if self.headers["X-aws-ec2-metadata-token"] != "a-token":
                    self.reply(401)
                elif self.path.endswith("/spot/instance-action") and told.is_set():
                    self.reply(200, '{"action": "terminate", "time": "2026-11-26T15:22:00Z"}')
                else:
                    self.reply(404)

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


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

    def test_dead_nvlink_drains(self):
        """A fatal word of NVLink has the job save and go on without the node; a daily word of the same code costs nothing, and
        neither does one that the settings call a note."""
        cluster = self.lab.cluster(3, patient=["node1", "node2", "node3"])
        self.addCleanup(cluster.down)
        log = os.path.join(cluster.folder, "kmsg")
        os.mkfifo(log)
        kernel = os.open(log, os.O_RDWR)
        self.addCleanup(os.close, kernel)
        cluster.configure("node3", kernel_log=log, state_dir=os.path.join(cluster.folder, "state3"), xid_actions={"119": "note"})
        reference = self.lab.reference(self.lab.job("reference"))
        job = self.lab.job("nvlink", checkpoint__every_steps=40)
        cluster.fault("node1", "loop.compute=stop@15")  # the job cannot end before the word is heard
        cluster.submit(job)
        stopped = self.lab.stopped()
        os.write(kernel, b"6,1,1,-;NVRM: Xid (PCI:0000:3b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)\n"
                         b"6,2,2,-;NVRM: Xid (PCI:0000:3b:00): 119, Timeout waiting for RPC\n"
                         b"6,3,3,-;NVRM: Xid (PCI:0000:3b:00): 45, pid=7, name=x, Ch 00000001 caused by previous Xid 145\n")
        self.assertEqual(cluster.ctl_code("node", "check", "node3")[0], 0)
        self.assertIn("3 that ask for nothing, the last: Xid 45 on 0000:3b:00, caused by Xid 145",
                      cluster.ctl("node", "status", "node3"))
        os.write(kernel, b"6,4,4,-;NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6)\n")
        until(lambda: "drains node3" in cluster.status(job)["reason"], "a drain")
        os.kill(stopped, signal.SIGCONT)
        self.check_same(cluster.finish(job), reference, "nvlink")
        status = cluster.status(job)
        self.assertEqual((status["generation"], status["incidents"]), (2, []))
        self.assertEqual({rank["node"] for rank in status["world"]["ranks"]}, {"node1", "node2"})
        self.assertIn("Xid 149 (fatal) on 0000:3b:00", cluster.ctl("node", "status", "node3"))
        cluster.ctl("node", "check", "node3", "--clear")  # the GPU was reset

    def test_spot_notice_costs_no_step(self):
        """The job saves and goes on without the instance; nothing failed, and nothing is trained twice."""
        cloud = Metadata()
        self.addCleanup(cloud.close)
        cluster = self.lab.cluster(3, patient=["node1", "node2", "node3"])
        self.addCleanup(cluster.down)
        cluster.configure("node3", spot_endpoint=cloud.url, state_dir=self.lab.path("state3"))
        reference = self.lab.reference(self.lab.job("reference"))
        job = self.lab.job("spot", checkpoint__every_steps=40)
        cluster.fault("node1", "loop.compute=stop@15")  # the job cannot end before the notice is heard
        cluster.submit(job)
        stopped = self.lab.stopped()
        cloud.told.set()
        until(lambda: "drains node3" in cluster.status(job)["reason"], "a drain")
        os.kill(stopped, signal.SIGCONT)
        self.check_same(cluster.finish(job), reference, "spot")
        status = cluster.status(job)
        self.assertEqual((status["generation"], status["incidents"]), (2, []))
        self.assertEqual({rank["node"] for rank in status["world"]["ranks"]}, {"node1", "node2"})
        saved = {m["step"] for _, m in self.lab.manifests(job)} - {0, 40}
        self.assertEqual(len(saved), 1, "it saved once, when it left")
        text = cluster.ctl("node", "status", "node3")
        self.assertIn("drain", text)
        self.assertIn("the cloud takes this instance at 2026-11-26T15:22:00Z (terminate)", text)

    def test_gpu_job_waits_for_a_gpu(self):
        """It waits where no node has one, other jobs train meanwhile; where its node lacks the module it is refused there,
        for this job alone."""
        nvml = self.lab.write("nvml.json", '{"gpus": [{"pci": "00000000:3B:00.0"}]}')
        self.lab.environment["FAKE_NVML"] = nvml
        cluster = self.lab.cluster(2)
        self.addCleanup(cluster.down)
        job = self.lab.job("gpu", train__device="cuda", world={"min": 1, "max": 2})
        code, text = cluster.ctl_code("job", "start", "-f", self.lab.job_file(job))
        self.assertEqual(code, 1, text)
        self.assertIn('train.device: "cuda" needs 1 slot that has a GPU, and no node that is known has a GPU', text)
        cluster.submit(job, "--queue", "--priority", "9")

        def reason():
            return cluster.status(job)["reason"]
        until(lambda: reason() == "needs 1 slot that has a GPU, 0 are free; no node has a GPU", "why it waits")
        cluster.ctl("job", "resize", "gpu", "--world", "2")  # it waits on
        until(lambda: reason() == "needs 1 slot that has a GPU, 0 are free; no node has a GPU", "why it waits on")
        other = self.lab.job("cpu", world={"min": 1, "max": 2}, train__steps=10)
        cluster.submit(other)
        cluster.finish(other)

        cluster.configure("node2", nvml=os.path.join(BIN, "fake-nvml.so"), sysfs=self.lab.path("sys"))
        self.assertIn("1 slot, 1 GPU, at ", cluster.ctl("node", "status", "node2"))
        until(lambda: cluster.status(job)["incidents"], "a node that lacks the module")
        incident = cluster.status(job)["incidents"][0]
        self.assertEqual((incident["cause"], incident["node"]), ("numerics", "node2"))
        self.assertIn('train.device "cuda": no CUDA module: ', incident["evidence"])
        until(lambda: "node2 is refused for this job: exit 85" in reason(), "the job waits again")
        again = self.lab.job("cpu-again", world={"min": 2, "max": 2}, train__steps=10)
        cluster.submit(again)
        cluster.finish(again)


if __name__ == "__main__":
    unittest.main(verbosity=2)
