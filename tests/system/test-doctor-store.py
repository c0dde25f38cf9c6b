#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sdctl doctor` where data and checkpoints lie on S3: a store that can be used, one that is not there, one that knows us not,
one that only lets us read, one that is away, and one that is slow.

Needs an S3 server: tests/s3/with-gateway tests/system/test-doctor-store.py.
"""
import json
import os
import sys
import unittest

from lab import BIN, SOURCE, LabCase, until

sys.path.insert(0, os.path.abspath(os.path.join(SOURCE, "tests/s3")))

import fault_proxy  # noqa: E402
import s3client  # noqa: E402

NODES = ["node1", "node2"]
PLACES = ["here"] + NODES
WRONG = "0123456789" * 4


class DoctorStore(LabCase):
    n_samples = 8

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.uri = os.environ["SDTRAIN_TEST_S3_URI"]
        cls.bucket = s3client.split(cls.uri)[0]
        cls.direct = s3client.Client.of_environment()
        cls.direct.put_folder(cls.lab.path("data"), cls.uri + "/data")
        cls.proxy = fault_proxy.Remote(os.environ["AWS_ENDPOINT_URL"])
        cls.addClassCleanup(cls.proxy.close)
        cls.lab.environment.update(AWS_ENDPOINT_URL=cls.proxy.endpoint)
        cls.data = cls.direct.list(cls.bucket)
        cls.cluster = cls.lab.cluster(2)
        cls.addClassCleanup(cls.cluster.down)
        until(lambda: len(json.loads(cls.cluster.ctl("node", "list", "-o", "json"))) == 2, "two nodes")

    def setUp(self):
        self.own = dict(self.lab.environment)

    def tearDown(self):
        self.lab.environment.clear()
        self.lab.environment.update(self.own)
        self.proxy.do("clear")
        self.proxy.do("listen", open=True)
        self.assertEqual(self.direct.list(self.bucket), self.data)  # nothing is left behind

    def every(self, **rule):
        """A fault of every request that fits."""
        self.proxy.do("add", rules=[dict(rule, count=None)])

    def stores(self, uri=None, **environment):
        """What is found about the stores of a job: {("checkpoints" or "data", place): (state, text)}."""
        uri = uri or self.uri
        self.lab.environment.update(environment)
        job = self.lab.job("looked-at", uri + "/data", checkpoint__uri=uri + "/saved")
        code, text = self.cluster.ctl_code("doctor", "-f", self.lab.job_file(job), "-o", "json")
        self.assertNotIn(os.environ["AWS_SECRET_ACCESS_KEY"], text)
        self.assertNotIn(WRONG, text)
        said = {}
        for one in json.loads(text)["findings"]:
            if one["check"] == "stores":
                kind = "data" if uri + "/data" in one["found"] else "checkpoints"
                said.update({(kind, place): (one["state"], one["found"]) for place in one["where"]})
            else:
                self.assertNotEqual(one["state"], "wrong", text)
        self.assertEqual(len(said), 2 * len(PLACES), text)
        self.assertEqual(code, 1 if "wrong" in [state for state, _ in said.values()] else 0, text)
        return said

    def check(self, said, kind, places, state, pattern):
        for place in places:
            self.assertEqual(said[kind, place][0], state, said)
            self.assertRegex(said[kind, place][1], pattern)

    def test_one_that_can_be_used(self):
        said = self.stores()
        self.check(said, "checkpoints", PLACES, "ok", "/saved: can be written and read$")
        self.check(said, "data", PLACES, "ok", "/data: a dataset that can be read$")

    def test_a_bucket_that_is_not_there(self):
        said = self.stores("s3://no-" + self.bucket)
        for kind in "checkpoints", "data":
            self.check(said, kind, PLACES, "wrong", "there is no bucket no-" + self.bucket)

    def test_data_that_are_not_there(self):
        said = self.stores(self.uri + "/elsewhere")
        self.check(said, "checkpoints", PLACES, "ok", "can be written and read$")
        self.check(said, "data", PLACES, "wrong", "/elsewhere/data/index.json: no such object$")

    def test_credentials_that_are_wrong_here(self):
        for environment in {"AWS_SECRET_ACCESS_KEY": WRONG}, {"AWS_ACCESS_KEY_ID": "nobody"}:
            said = self.stores(**environment)
            for kind in "checkpoints", "data":
                self.check(said, kind, ["here"], "wrong", "403 (SignatureDoesNotMatch|InvalidAccessKeyId)")
                self.check(said, kind, NODES, "ok", ": ")
            self.tearDown()

    def test_credentials_that_are_wrong_on_a_node(self):
        with open(self.lab.path("options/node2")) as file:
            good = file.read()
        for text, state, pattern in ((good + " --trainer-environment=AWS_SECRET_ACCESS_KEY=" + WRONG, "wrong",
                                      "403 SignatureDoesNotMatch"), (good, "ok", ": ")):
            before = self.cluster.incarnation("node2")
            self.lab.write("options/node2", text)
            self.cluster.kill("node2")
            self.cluster.start("node2")
            until(lambda: self.cluster.incarnation("node2") not in (None, before), "node2 with other credentials")
            said = self.stores()
            for kind in "checkpoints", "data":
                self.check(said, kind, ["here", "node1"], "ok", ": ")
                self.check(said, kind, ["node2"], state, pattern)

    def test_one_that_may_only_be_read(self):
        """An operator needs no more; ranks do."""
        self.every(match={"method": "PUT"}, fault="status", status=403, code="AccessDenied")
        said = self.stores()
        self.check(said, "checkpoints", ["here"], "note", "403 AccessDenied")
        self.check(said, "checkpoints", NODES, "wrong", "403 AccessDenied")
        self.check(said, "data", PLACES, "ok", ": ")

    def test_one_that_is_away(self):
        self.proxy.do("listen", open=False)
        said = self.stores()
        for kind in "checkpoints", "data":
            self.check(said, kind, PLACES, "wrong", "no usable answer in 4 s; the last: .*onnect")

    def test_one_that_is_broken(self):
        self.every(fault="status", status=500, code="InternalError")
        said = self.stores()
        for kind in "checkpoints", "data":
            self.check(said, kind, PLACES, "wrong", "no usable answer in 4 s; the last: 500")

    def test_one_that_hangs(self):
        self.every(match={"method": "PUT"}, fault="stall", where="request", after=0)
        said = self.stores()
        self.check(said, "checkpoints", PLACES, "wrong", "no usable answer in 4 s; the last: ")
        self.check(said, "data", PLACES, "ok", ": ")
        self.drop_what_is_left()

    def test_one_that_is_slow(self):
        """All requests of a try together take longer than doctor waits, though none fails."""
        self.every(match={"path": "/saved/"}, fault="slow", where="reply", delay_sec=3)
        said = self.stores()
        self.check(said, "checkpoints", PLACES, "wrong", "/saved: not done within 8 s: it hangs, or answers slowly$")
        self.check(said, "data", PLACES, "ok", ": ")
        self.drop_what_is_left()

    def drop_what_is_left(self):
        """A store that does not answer may do what it was asked, and nobody takes that away."""
        self.proxy.do("clear")
        until(lambda: self.proxy.do("count")["under_way"] == 0, "the end of all requests")
        for prefix in "saved/.sdtrain-try-", "saved/.put-probe-", "saved/.sdtrain-doctor-":
            for key in self.direct.list(self.bucket, prefix):
                self.direct.delete(self.bucket, key)


if __name__ == "__main__":
    unittest.main(verbosity=2)
