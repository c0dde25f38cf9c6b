#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdprep encode from S3 to S3: the bytes that a folder gets, also when the store is away, loses answers or refuses for a while.

Needs an S3 server: tests/s3/with-gateway tests/system/test-encode-store.py.
"""
import json
import os
import shutil
import signal
import sys
import unittest

from encoded import MODEL, SDPREP, EncodeCase
from lab import SOURCE, process_state, until

sys.path.insert(0, os.path.abspath(os.path.join(SOURCE, "tests/s3")))

import fault_proxy  # noqa: E402
import s3client  # noqa: E402

ORIGIN = "index.sdtrain.json"


class Stored(EncodeCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.uri = os.environ["SDTRAIN_TEST_S3_URI"]
        cls.bucket = s3client.split(cls.uri)[0]
        cls.direct = s3client.Client.of_environment()
        cls.direct.put_folder(cls.lab.path("raw"), cls.uri + "/raw")
        cls.direct.put_folder(MODEL, cls.uri + "/model")
        cls.proxy = fault_proxy.Remote(os.environ["AWS_ENDPOINT_URL"])
        cls.addClassCleanup(cls.proxy.close)
        cls.lab.environment.update(AWS_ENDPOINT_URL=cls.proxy.endpoint, SDTRAIN_S3_DEADLINE_SEC="2")
        cls.stored = cls.write_recipe("stored", model=cls.uri + "/model")

    def tearDown(self):
        self.proxy.do("clear")
        self.proxy.do("listen", open=True)

    def encode_s3(self, name, *options, fault=None):
        return self.encode(self.stored, "%s/%s" % (self.uri, name), *options, source=self.uri + "/raw", fault=fault)

    def start_s3(self, name, *options, fault=None):
        return self.start("%s/%s" % (self.uri, name), fault, "--recipe", self.stored, *options, source=self.uri + "/raw")

    def check_s3(self, name):
        found = {key[len(name) + 1:]: self.direct.get(self.bucket, key) for key in self.direct.list(self.bucket, name + "/")}
        found = {key: data for key, data in found.items() if key in self.reference or not key.startswith("index.sdtrain")}
        self.assertEqual(sorted(found), sorted(self.reference), name)
        # Versions are the store's.
        units, reference = (json.loads(tree["encoding/input.json"]) for tree in (found, self.reference))
        for unit, key in zip(units["units"], ("00000.tar", "00001.tar", "00002.tar")):
            self.assertEqual(unit.pop("version"), self.direct.do("HEAD", "/%s/raw/%s" % (self.bucket, key))[0]["etag"].strip('"'))
        for unit in reference["units"]:
            unit.pop("version")
        self.assertEqual(units, reference)
        encoder, reference = (json.loads(tree["encoder.json"]) for tree in (found, self.reference))
        encoder["files"].pop("encoding/input.json"), reference["files"].pop("encoding/input.json")
        self.assertEqual(encoder, reference)
        for key in set(found) - {"encoder.json", "encoding/input.json"}:
            self.assertEqual(found[key], self.reference[key], "%s: %s" % (name, key))
        self.assertEqual(self.direct.uploads(self.bucket, name + "/"), [])

    def test_same_bytes(self):
        """Killed on its way, by several processes."""
        for visit in (2, 9):
            code, text = self.encode_s3("same", fault="store.put.after=kill@%d" % visit)
            self.assertEqual(code, -signal.SIGKILL, text)
        lives = [self.start_s3("same", "--units", "%d/2" % n) for n in (1, 2, 2)]
        for life in lives:
            code, text = self.end(life)
            self.assertEqual(code, 0, text)
        # No shard is read again.
        self.proxy.do("forget")
        code, text = self.encode_s3("same", "--finish")
        self.assertEqual(code, 0, text)
        self.assertGreater(self.proxy.do("count", match={"method": "GET", "path": "/same/encoding/u"})["n"], 2)
        self.assertEqual(self.proxy.do("count", match={"method": "GET", "path": "/same/u"})["n"], 0)
        self.check_s3("same")
        code, text = self.encode_s3("same")
        self.assertEqual((code, "is finished" in text), (0, True), text)
        code, text = self.encode(self.write_recipe("other", resample="bicubic"), self.uri + "/same", source=self.uri + "/raw")
        self.assertEqual(code, 1, text)
        self.assertIn("of another encoding", text)
        # A rank reads it as it reads any dataset; its compact index is found.
        folder = self.lab.path("fetched")
        shutil.copytree(self.out, folder)
        code, text = self.lab.run(SDPREP, "inspect", self.uri + "/same")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"samples +32\b")
        self.assertIn("of each sample in the compact index", text)
        self.assertEqual(self.lab.run(SDPREP, "inspect", folder), (0, text))

    def test_an_object_that_is_exchanged(self):
        """A tar of equal size is put in the place of one that a life has begun: its ETag tells."""
        shutil.copytree(self.lab.path("raw"), self.lab.path("exchanged"))
        self.direct.put_folder(self.lab.path("exchanged"), self.uri + "/exchanged")
        source, out = self.uri + "/exchanged", self.uri + "/exchanged-out"
        code, text = self.encode(self.stored, out, source=source, fault="encode.part.report=kill@6")
        self.assertEqual(code, -signal.SIGKILL, text)
        former = self.direct.get(self.bucket, "exchanged/00002.tar")
        self.direct.put(self.bucket, "exchanged/00002.tar", former.replace(b"a caption, number 19", b"no caption, number 1"))
        code, text = self.encode(self.stored, out, source=source)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"00002.tar has changed since s3://\S+/exchanged-out was begun: its version was [0-9a-f]{32}, and is")
        self.direct.put(self.bucket, "exchanged/00002.tar", former)
        code, text = self.encode(self.stored, out, source=source)
        self.assertEqual(code, 0, text)
        found = {key[len("exchanged-out/"):]: self.direct.get(self.bucket, key)
                 for key in self.direct.list(self.bucket, "exchanged-out/u")}
        self.assertEqual(found, {key: self.reference[key] for key in found})
        self.assertEqual(len(found), 8)

    def test_killed_before_it_tidies(self):
        """The object that says of which index.json the compact index was made comes last."""
        code, text = self.encode_s3("untidy", fault="encode.finish.index=kill")
        self.assertEqual(code, -signal.SIGKILL, text)
        origin = "untidy/" + ORIGIN
        self.assertNotIn(origin, self.direct.list(self.bucket, "untidy/"))
        for _ in range(2):
            code, text = self.encode_s3("untidy")
            self.assertEqual((code, "is finished" in text), (0, True), text)
            self.assertIn(origin, self.direct.list(self.bucket, "untidy/"))

    def test_away(self):
        """The store goes while raw pictures are read, while shards are put, and before the dataset is finished."""
        life = self.start_s3("away", fault="encode.picture=stop@4,encode.part.shard=stop@3,encode.unit.report=stop@3")
        for point in ("encode.picture", "encode.part.shard", "encode.unit.report"):
            until(lambda: process_state(life.pid) == "T", "the process to be stopped")
            self.proxy.do("listen", open=False)
            life.send_signal(signal.SIGCONT)
            line = ""
            while "waiting" not in line:  # its output ends should it give up
                line = life.stdout.readline()
                self.assertTrue(line, point)
            self.assertRegex(line, "cannot|no usable answer|not be reached|connect")
            self.proxy.do("listen", open=True)
            while "goes on after" not in line:
                line = life.stdout.readline()
                self.assertTrue(line, point)
        code, text = self.end(life)
        self.assertEqual(code, 0, text)
        self.check_s3("away")

    def test_lost_answers(self):
        """Each third put is done and its answer lost, some are refused for a while: the same bytes, once."""
        self.proxy.add("lose", {"method": "PUT", "path": "/lost/"}, skip=2, count=6)
        self.proxy.add("status", {"method": "PUT", "path": "/lost/"}, skip=8, count=3, status=503, code="SlowDown")
        self.proxy.add("reset", {"method": "GET", "path": "/raw/"}, count=2, where="reply", after=20000)
        code, text = self.encode_s3("lost")
        self.assertEqual(code, 0, text)
        self.check_s3("lost")

    def test_refused(self):
        """Credentials that run out are waited for; those that never were allowed to write are not."""
        self.proxy.add("status", {"method": "PUT"}, count=None, status=403, code="AccessDenied")
        code, text = self.encode_s3("refused")
        self.assertEqual(code, 1, text)
        self.assertNotIn("waiting", text)
        self.proxy.do("clear")
        self.proxy.add("status", {"method": "PUT", "path": "/refused/"}, skip=3, count=2, status=403, code="ExpiredToken")
        code, text = self.encode_s3("refused")
        self.assertEqual(code, 0, text)
        self.assertIn("waiting", text)
        self.check_s3("refused")


if __name__ == "__main__":
    unittest.main(verbosity=2)
