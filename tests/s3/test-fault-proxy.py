#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fault proxy in front of the real server: what passes is whole, and each fault is what it says."""
import concurrent.futures
import datetime
import errno
import hashlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import fault_proxy  # noqa: E402
import s3client  # noqa: E402

BROKEN = (ConnectionError, http.client.IncompleteRead, http.client.BadStatusLine)
BODY = bytes(range(256)) * 1024


class FaultProxy(unittest.TestCase):
    def setUp(self):
        self.server = json.loads(os.environ["SDTRAIN_TEST_S3"])
        self.direct = s3client.Client.of_environment()
        self.bucket = os.environ["SDTRAIN_TEST_S3_URI"][len("s3://"):]
        self.prefix = "/%s/%s/" % (self.bucket, self.id().rpartition(".")[2])
        self.start()

    def start(self, *arguments, **more):
        keys = "%s %s" % (self.server["access_key"], self.server["secret_key"])
        self.proxy = fault_proxy.Remote(self.server["endpoint"], *arguments, keys=keys)
        self.addCleanup(self.proxy.close)
        self.client = s3client.Client(self.proxy.endpoint, self.server["access_key"], self.server["secret_key"], **more)

    def put(self, key="it", body=BODY, **more):
        return self.client.ask("PUT", self.prefix + key, body=body, **more)

    def get(self, key="it", **more):
        return self.client.ask("GET", self.prefix + key, **more)

    def is_there(self, key):
        return self.direct.ask("HEAD", self.prefix + key)[0] == 200

    def test_passes_large_bodies_in_small_memory(self):
        body = os.urandom(1 << 20) * 200
        self.assertEqual(self.put("large", body)[0], 200)
        self.assertEqual(hashlib.sha256(self.get("large")[2]).digest(), hashlib.sha256(body).digest())
        status, headers, part = self.get("large", headers={"Range": "bytes=5-14"})
        self.assertEqual((status, part), (206, body[5:15]))
        with open("/proc/%d/status" % self.proxy.pid) as file:
            peak_kb = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
        self.assertLess(peak_kb, 100 << 10)
        self.assertEqual(self.get("none")[0], 404)
        status, headers, nothing = self.client.ask("HEAD", self.prefix + "large")
        self.assertEqual((status, headers["content-length"], nothing), (200, str(len(body)), b""))

    def test_kept_alive(self):
        connection = self.client.connect()
        for n in range(5):
            path = self.prefix + str(n)
            connection.request("PUT", path, b"x", self.client.sign("PUT", path, "", {}, hashlib.sha256(b"x").hexdigest()))
            reply = connection.getresponse()
            self.assertEqual((reply.status, reply.read()), (200, b""))
            connection.request("GET", path, headers=self.client.sign("GET", path, "", {}, hashlib.sha256(b"").hexdigest()))
            self.assertEqual(connection.getresponse().read(), b"x")
        connection.close()
        self.assertEqual(self.proxy.do("count")["n"], 10)

    def test_status(self):
        self.proxy.add("status", {"method": "PUT", "path": "/it$"}, status=503, code="SlowDown", retry_after=7, skip=1,
                       count=2)
        self.assertEqual([self.put()[0] for _ in range(5)], [200, 503, 503, 200, 200])
        self.proxy.add("status", {"method": "PUT"}, status=503, code="SlowDown", retry_after=7)
        status, headers, body = self.put("refused")
        self.assertEqual((status, headers["retry-after"]), (503, "7"))
        self.assertIn(b"<Code>SlowDown</Code>", body)
        self.assertFalse(self.is_there("refused"))
        self.proxy.add("status", {"method": "PUT"}, status=500, acted=True)
        self.assertEqual(self.put("acted")[0], 500)
        self.assertTrue(self.is_there("acted"))
        self.assertEqual(self.get("acted")[0], 200)

    def test_probability_repeats_with_its_seed(self):
        outcomes = []
        for _ in range(2):
            self.start("--seed", "5")
            self.proxy.add("status", count=None, probability=0.5)
            outcomes.append([self.get()[0] for _ in range(20)])
        self.assertEqual(outcomes[0], outcomes[1])
        self.assertEqual(set(outcomes[0]), {500, 404})

    def test_reset_anywhere_in_a_request(self):
        for after in (0, 1, 100, 2000, len(BODY) // 2, len(BODY)):
            key = "reset%d" % after
            self.proxy.add("reset", where="request", after=after)
            with self.assertRaises(BROKEN):
                self.put(key)
            self.assertFalse(self.is_there(key))
            self.assertEqual(self.put(key)[0], 200)

    def test_reset_and_truncation_anywhere_in_a_reply(self):
        self.put()
        for fault in ("reset", "truncate"):
            for after in (0, 1, 100, 2000, len(BODY)):
                self.proxy.add(fault, after=after)
                with self.assertRaises(BROKEN):
                    self.get()
                self.assertEqual(self.get()[2], BODY)

    def test_corruption(self):
        self.put()
        for at in (0, 70000, -1):
            self.proxy.add("corrupt", {"method": "GET"}, at=at)
            got = self.get()[2]
            wrong = [i for i in range(len(BODY)) if got[i] != BODY[i]]
            self.assertEqual(wrong, [at % len(BODY)])
        self.proxy.add("corrupt", {"method": "GET"}, at=None, count=4)
        self.assertEqual(len({self.get()[2] for _ in range(4)} - {BODY}), 4)
        self.proxy.add("corrupt", {"method": "PUT"}, where="request", at=100000)
        status, _, answer = self.put("corrupted")
        self.assertEqual(status, 400, answer)
        self.assertFalse(self.is_there("corrupted"))

    def test_stall_and_release(self):
        self.put()
        for where, method in (("reply", "GET"), ("request", "PUT")):
            rule = self.proxy.add("stall", {"method": method}, where=where, after=5000)
            with concurrent.futures.ThreadPoolExecutor() as pool:
                waiting = pool.submit(self.get if method == "GET" else self.put)
                self.proxy.do("wait", rule=rule)
                self.assertEqual(self.proxy.do("count", match={"method": method})["under_way"], 1)
                self.proxy.do("release")
                self.assertEqual(waiting.result(60)[0], 200)
        self.proxy.add("stall", {"method": "GET"}, after=5000)
        with self.assertRaises(TimeoutError):
            self.get(timeout=0.3)
        self.proxy.do("wait", match={"method": "GET"}, n=2, ended=True)

    def test_reply_lost(self):
        self.proxy.add("lose")
        with self.assertRaises(BROKEN):
            self.put("lost")
        self.assertTrue(self.is_there("lost"))

    def test_slow(self):
        self.put()
        self.proxy.add("slow", delay_sec=0.2, bytes_per_sec=4 << 20)
        self.assertEqual(self.get()[2], BODY)
        self.proxy.do("wait", match={"method": "GET"}, ended=True)
        request, = self.proxy.do("log", match={"method": "GET"})["requests"]
        self.assertGreater(request["ended"] - request["began"], 0.2)

    def test_closed_port(self):
        self.put()
        self.proxy.do("listen", open=False)
        with self.assertRaises(OSError) as refused:
            self.get()
        self.assertEqual(refused.exception.errno, errno.ECONNREFUSED)
        self.proxy.do("listen", open=True)
        self.assertEqual(self.get()[2], BODY)

    def test_clock(self):
        self.proxy.add("clock", count=None, skew_sec=-3600)
        status, headers, body = self.put("clock")
        self.assertEqual(status, 403)
        self.assertIn(b"RequestTimeTooSkewed", body)
        sign, skewed = self.client.sign, datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
        self.client.sign = lambda *arguments: sign(*arguments, now=skewed)
        self.assertEqual(self.put("clock")[0], 200)
        self.assertTrue(self.is_there("clock"))
        self.client.secret_key += "x"
        self.assertIn(b"SignatureDoesNotMatch", self.put("clock")[2])

    def test_date(self):
        self.proxy.add("date", skew_sec=86400)
        headers = self.get()[1]
        date = datetime.datetime.strptime(headers["date"], "%a, %d %b %Y %H:%M:%S %Z")
        self.assertGreater(date - datetime.datetime.utcnow(), datetime.timedelta(hours=23))

    def test_counts_what_runs_together(self):
        rule = self.proxy.add("stall", {"path": "/together"}, where="reply", after=0, count=None)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            waiting = [pool.submit(self.put, "together%d" % i, b"x") for i in range(8)]
            self.proxy.do("wait", rule=rule, n=8)
            self.proxy.do("clear")
            self.assertEqual({w.result(60)[0] for w in waiting}, {200})
        self.proxy.do("wait", n=8, ended=True)
        self.assertEqual(self.proxy.do("count", match={"path": "/together"}), {"n": 8, "under_way": 0, "most_at_once": 8})

    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            files = folder + "/certificate", folder + "/key"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout",
                            files[1]], check=True, stderr=subprocess.DEVNULL)
            self.start("--tls", *files, ca=files[0])
            self.assertEqual(self.put("tls")[0], 200)
            self.assertEqual(self.get("tls")[2], BODY)
            self.proxy.add("reset", after=1000)
            with self.assertRaises(BROKEN):
                self.get("tls")

    def test_wrong_commands_are_told(self):
        for rule in ({"fault": "none"}, {"fault": "lose", "after": 1}, {"fault": "reset", "where": "there"},
                     {"fault": "lose", "match": {"size": "1"}}):
            with self.assertRaises(AssertionError):
                self.proxy.do("add", rules=[rule])
        with self.assertRaises(AssertionError):
            self.proxy.do("nothing")
        with self.assertRaises(AssertionError):
            self.proxy.do("wait", n=1, timeout=0.1)


if __name__ == "__main__":
    unittest.main()
