# SPDX-License-Identifier: Apache-2.0
"""A store driven through the fault proxy: store-driver, what it must answer, and what must be on the server afterwards."""
import json
import os
import random
import re
import select
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)

import fault_proxy  # noqa: E402
import s3client  # noqa: E402

PART = 5 << 20  # the smallest that S3 takes
PATIENCE_SEC = 150


class StoreTest(unittest.TestCase):
    """self.expected is what must be in the bucket when the test ends, and nothing else."""

    proxied = ()

    def setUp(self):
        self.server = json.loads(os.environ["SDTRAIN_TEST_S3"])
        self.bucket = os.environ["SDTRAIN_TEST_S3_URI"][len("s3://"):]
        self.direct = s3client.Client.of_environment()
        self.secrets = [self.server["secret_key"]]
        self.expected, self.random = {}, random.Random(self.id())
        self.folder = tempfile.mkdtemp(prefix="sdtrain-store-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.log = open(os.path.join(self.folder, "log"), "a+")
        self.addCleanup(self.log.close)
        self.driver = None
        self.start_proxy(*self.proxied)
        self.begin()

    def start_proxy(self, *arguments):
        keys = "%s %s" % (self.server["access_key"], self.server["secret_key"])
        self.proxy = fault_proxy.Remote(self.server["endpoint"], *arguments, keys=keys)
        self.addCleanup(self.proxy.close)

    def tearDown(self):
        self.end()
        try:
            self.check()
        finally:
            self.empty()

    def check(self):
        """Nothing but what was put lies in the bucket, whole; and no secret stands in the log."""
        prefix = "store/"
        found = self.direct.list(self.bucket)
        self.assertEqual(found, {prefix + key: len(data) for key, data in self.expected.items()})
        for key, data in self.expected.items():
            self.assertTrue(self.direct.get(self.bucket, prefix + key) == data, "%s has other bytes" % key)
        self.assertEqual(self.direct.uploads(self.bucket), [])
        self.log.seek(0)
        self.no_secret(self.log.read())

    def empty(self):
        for key, upload in self.direct.uploads(self.bucket):
            self.direct.do("DELETE", "/%s/%s" % (self.bucket, key), {"uploadId": upload})
        for key in self.direct.list(self.bucket):
            self.direct.delete(self.bucket, key)

    def start_over(self):
        """What was put is checked and removed, rules too; the driver stays."""
        self.proxy.do("clear")
        self.check()
        self.empty()
        self.expected = {}

    # ---- the driver ----

    def begin(self, bucket=None, **environment):
        """A driver instead of the last, with more in its environment; None removes."""
        self.end()
        settings = dict(os.environ, AWS_ENDPOINT_URL=self.proxy.endpoint, SDTRAIN_S3_PART_BYTES=str(PART),
                        SDTRAIN_S3_STALL_SEC="2", SDTRAIN_S3_DEADLINE_SEC="120")
        settings.update(environment)
        settings = {name: value for name, value in settings.items() if value is not None}
        program = os.path.join(os.environ["SDTRAIN_BIN"], "store-driver")
        self.driver = subprocess.Popen([program, "s3://%s/store" % (bucket or self.bucket)], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=self.log, env=settings, text=True)

    def refused_to_begin(self, pattern, **environment):
        """The store cannot even be opened."""
        self.log.truncate(0)
        self.begin(**environment)
        self.driver.stdin.close()
        self.assertEqual(self.driver.wait(PATIENCE_SEC), 1)
        self.driver.stdout.close()
        self.driver = None
        self.log.seek(0)
        self.assertRegex(self.log.read(), pattern)

    def end(self):
        if self.driver:
            self.driver.stdin.close()
            try:
                status = self.driver.wait(PATIENCE_SEC)
            except subprocess.TimeoutExpired:
                self.driver.kill()
                self.driver.wait()
                raise
            finally:
                self.driver.stdout.close()
                self.driver = None
            self.assertEqual(status, 0)

    def send(self, verb, key="", data=None, **more):
        self.file = os.path.join(self.folder, "data")
        if data is not None:
            with open(self.file, "wb") as file:
                file.write(data)
        self.driver.stdin.write(json.dumps(dict(more, do=verb, key=key, file=self.file)) + "\n")
        self.driver.stdin.flush()

    def answered_within(self, seconds):
        return bool(select.select([self.driver.stdout], [], [], seconds)[0])

    def answer(self):
        """What came of it, and the bytes that were read."""
        if not self.answered_within(PATIENCE_SEC):
            self.driver.kill()
            self.fail("no answer in %d s" % PATIENCE_SEC)
        line = self.driver.stdout.readline()
        self.assertTrue(line, "the driver has ended")
        says = json.loads(line)
        self.no_secret(says["text"])
        with open(self.file, "rb") as file:
            return says, file.read()

    def do(self, verb, key="", data=None, **more):
        self.send(verb, key, data, **more)
        return self.answer()

    # ---- what must come of it ----

    def ok(self, verb, key="", data=None, **more):
        if verb in ("get", "range", "fetch"):
            data = b"stale"
        says, data = self.do(verb, key, data if data is not None else b"", **more)
        self.assertEqual((says["r"], says["text"]), (0, ""))
        return says, data

    def refused(self, r, pattern, verb, key="", data=b"", **more):
        says, _ = self.do(verb, key, data, **more)
        self.assertEqual(says["r"], r, says["text"])
        self.assertRegex(says["text"], re.compile(pattern, re.I))

    def put(self, key, data, **more):
        self.ok("put", key, data, **more)
        self.expected[key] = data

    def get(self, key):
        return self.ok("get", key)[1]

    def delete(self, key):
        self.ok("delete", key)
        self.expected.pop(key, None)

    def bytes(self, n):
        return self.random.randbytes(n)

    def fired(self, rule, at_most=None):
        """A rule that has struck, so that the test was of something."""
        fired = next(r["fired"] for r in self.proxy.do("rules")["rules"] if r["id"] == rule)
        self.assertTrue(1 <= fired <= (at_most or fired), "rule %d fired %d times" % (rule, fired))

    def no_secret(self, text):
        for secret in self.secrets:
            self.assertNotIn(secret, text)
