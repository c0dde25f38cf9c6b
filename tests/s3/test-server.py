#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests may expect of their S3 servers, and that a server ends when it should."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)

import s3client  # noqa: E402
import service  # noqa: E402


def until(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("not within a minute: " + what)
        time.sleep(0.02)


class Server(unittest.TestCase):
    def setUp(self):
        self.client = s3client.Client.of_environment()
        self.bucket = os.environ["SDTRAIN_TEST_S3_URI"][len("s3://"):]
        self.server = json.loads(os.environ["SDTRAIN_TEST_S3"])

    def test_objects(self):
        keys = {"plain": b"", "a b+c/\u00e4": b"x", "a/b//c": b"12", "z" * 1000: b"y" * 70000}
        for key, body in keys.items():
            self.client.put(self.bucket, key, body)
        self.assertEqual({key: self.client.get(self.bucket, key) for key in keys}, keys)
        self.assertEqual(self.client.list(self.bucket), {key: len(body) for key, body in keys.items()})
        self.assertEqual(list(self.client.list(self.bucket, "a/")), ["a/b//c"])
        for key in keys:
            self.client.delete(self.bucket, key)
        self.assertEqual(self.client.list(self.bucket), {})

    def test_uploads_are_seen(self):
        self.client.do("POST", "/%s/%s" % (self.bucket, "in parts"), {"uploads": ""})
        (key, upload), = self.client.uploads(self.bucket)
        self.assertEqual(key, "in parts")
        self.client.do("DELETE", "/%s/%s" % (self.bucket, key), {"uploadId": upload})
        self.assertEqual(self.client.uploads(self.bucket), [])

    def test_put_if_absent(self):
        self.client.put(self.bucket, "once", b"1")
        status, _, body = self.client.ask("PUT", "/%s/once" % self.bucket, body=b"2", headers={"If-None-Match": "*"})
        self.assertEqual(status, {"ceph": 412, "swift": 501}[self.server["server"]], body)
        self.assertEqual(self.client.get(self.bucket, "once"), b"1")

    def test_signatures_are_checked(self):
        self.client.secret_key += "x"
        self.assertEqual(self.client.ask("GET", "/" + self.bucket)[0], 403)

    def test_ends_with_whom_it_was_started_for(self):
        """A server of the other kind, once by that one's death, once by its own: nothing is left."""
        other, victim = ("swift", "patron") if self.server["server"] == "ceph" else ("ceph", "server")
        patron = subprocess.Popen([os.path.join(HERE, "with-gateway"), other, "sleep", "600"],
                                  env=dict(os.environ, SDTRAIN_TEST_SERVERS="", SDTRAIN_TEST_S3="{}"))
        self.addCleanup(patron.wait)
        self.addCleanup(patron.kill)
        until(lambda: self.environment(patron.pid).get("SDTRAIN_TEST_S3", "{}") != "{}", "the command")
        folder = json.loads(self.environment(patron.pid)["SDTRAIN_TEST_S3"])["dir"]  # what SIGKILL leaves behind
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        server, = self.children(patron.pid)
        everything = [server] + self.children(server)
        self.assertEqual(len(everything), 1 + {"ceph": 3, "swift": 5}[other])
        os.kill(patron.pid if victim == "patron" else server, signal.SIGKILL)
        until(lambda: not any(map(service.start_time, everything)), "the end of all that was started")

    def environment(self, pid):
        """Empty for a moment while a process becomes another program."""
        with open("/proc/%d/environ" % pid) as file:
            return dict(word.split("=", 1) for word in file.read().split("\0") if "=" in word)

    def children(self, pid):
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            return [int(child) for child in file.read().split()]


if __name__ == "__main__":
    unittest.main()
