#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The S3 store behind a proxy that breaks things, in front of the real server: what is asked for is done or is refused
clearly, the bytes are right, and nothing is left behind.

Not here: a corrupted download in ranges. Ceph 16 keeps no crc32c, and what it answers is then believed here, and found by
the hashes of shards and chunks above.
"""
import datetime
import http.server
import json
import os
import random
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

from store_test import PART, StoreTest  # noqa: E402

FULL = bool(os.environ.get("SDTRAIN_CHAOS_FULL"))
LIFE_SEC = 6
SMALL, LARGE = 3000, 2 * PART + 12345
ENOENT, EIO, EACCES, EEXIST, EHOSTUNREACH = -2, -5, -13, -17, -113


def places(n_bytes):
    """Where in a message it breaks: ten places; with `ops/test --chaos` about each seventh byte."""
    return range(0, n_bytes, 7 if FULL else n_bytes // 9)


class CredentialsEndpoint:
    """Gives the server's keys, which it says expire soon."""

    def __init__(self, server, life_sec):
        endpoint, self.n_asked = self, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                endpoint.n_asked += 1
                expires = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=life_sec)
                body = json.dumps({"AccessKeyId": server["access_key"], "SecretAccessKey": server["secret_key"],
                                   "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Faults(StoreTest):
    def every_operation(self):
        """Each of them once, with what it answers."""
        small, large = self.bytes(SMALL), self.bytes(LARGE)
        self.put("small", small)
        self.put("large", large)
        self.put("absent", small, absent=True)
        self.refused(EEXIST, "exists", "put", "absent", data=large, absent=True)
        self.assertEqual(self.get("small"), small)
        self.assertEqual(self.get("large"), large)
        self.assertEqual(self.ok("range", "large", offset=PART - 5, n=SMALL)[1], large[PART - 5:PART - 5 + SMALL])
        self.assertEqual(self.ok("fetch", "large", n=LARGE)[1], large)
        self.assertEqual(self.ok("head", "large")[0]["n"], LARGE)
        self.assertTrue(self.ok("version", "small")[0]["version"])
        self.assertEqual(self.ok("list")[0]["keys"], sorted(self.expected))
        self.refused(ENOENT, "none", "get", "none")
        self.delete("absent")
        self.delete("absent")

    def test_without_faults(self):
        self.every_operation()
        self.assertEqual(self.ok("probe")[0]["n"], 1)
        for n in range(12):
            self.put("many/%d" % n, b"x")
        self.ok("delete_many", "many/")
        self.expected = {key: body for key, body in self.expected.items() if not key.startswith("many/")}

    def test_server_errors(self):
        """Each request is refused once before it is served."""
        for status, code in ((500, "InternalError"), (503, "SlowDown"), (503, "ServiceUnavailable"), (429, "TooManyRequests")):
            with self.subTest(code=code):
                for n in range(12):
                    self.proxy.add("status", status=status, code=code, skip=2 * n)
                self.every_operation()
                self.start_over()

    def test_slow_down_burst(self):
        data = self.bytes(8 * PART)
        self.put("it", data)
        self.proxy.add("status", {"method": "GET"}, status=503, code="SlowDown", count=30)
        self.assertEqual(self.ok("fetch", "it", n=len(data))[1], data)
        self.assertEqual(self.ok("fetch", "it", n=len(data))[1], data)

    def test_random(self):
        """All that can happen to a tenth of all requests."""
        for fault, more in (("reset", {"where": "request", "after": 300}), ("reset", {"where": "reply", "after": 200}),
                            ("truncate", {"after": 300}), ("lose", {}), ("status", {"status": 500}),
                            ("status", {"status": 503, "code": "SlowDown"}), ("corrupt", {"where": "request", "at": 1})):
            self.proxy.add(fault, probability=0.03, count=None, **more)
        for _ in range(2):
            self.every_operation()
        self.proxy.do("clear")

    def test_any_request(self):
        """One of all requests is broken, somewhere; with `ops/test --chaos` so often that each was."""
        for n in range(200 if FULL else 2):
            fault, where, after = self.random.choice(("reset", "truncate", "lose", "stall")), None, None
            if fault != "lose":
                where = "reply" if fault == "truncate" else self.random.choice(("request", "reply"))
                after = self.random.choice((self.random.randrange(40), self.random.randrange(700), None))
            skip = self.random.randrange(30)
            more = {} if fault == "lose" else {"after": after} if fault == "truncate" else {"where": where, "after": after}
            with self.subTest(n=n, fault=fault, skip=skip, **more):
                self.proxy.add(fault, skip=skip, **more)
                self.every_operation()
                self.proxy.do("clear")
                self.ok("sweep")
                self.start_over()

    # ---- connections that break ----

    def test_reset_anywhere_in_a_put(self):
        data = self.bytes(SMALL)
        for where, last in (("request", 900 + SMALL), ("reply", 400)):
            for after in [*places(last), None]:
                with self.subTest(where=where, after=after):
                    for absent in (False, True):
                        rule = self.proxy.add("reset", {"method": "PUT"}, where=where, after=after)
                        self.put("%s-%s-%d" % (where, after, absent), data, absent=absent)
                        self.fired(rule, at_most=1)
                        self.proxy.do("clear")

    def test_reset_or_truncated_anywhere_in_a_get(self):
        data = self.bytes(SMALL)
        self.put("it", data)
        for fault in ("reset", "truncate"):
            for after in [*range(3, 60, 9), *places(400 + SMALL)]:
                with self.subTest(fault=fault, after=after):
                    where = {"where": "reply"} if fault == "reset" else {}
                    rule = self.proxy.add(fault, {"method": "GET"}, after=after, **where)
                    self.assertEqual(self.get("it"), data)
                    self.fired(rule, at_most=1)
                    self.proxy.do("clear")

    def test_reset_in_parts(self):
        """At each step of an upload in parts, on the way there and on the way back."""
        data = self.bytes(LARGE)
        steps = {"begin": ("POST", "uploads"), "part": ("PUT", "partNumber=2"), "complete": ("POST", "uploadId=")}
        for step, (method, query) in steps.items():
            for fault, more in (("reset", {"where": "request", "after": 50}), ("reset", {"where": "reply", "after": 50}),
                                ("truncate", {"after": 250}), ("lose", {}), ("status", {"status": 500}),
                                ("status", {"status": 500, "acted": True})):
                with self.subTest(step=step, fault=fault, **more):
                    rule = self.proxy.add(fault, {"method": method, "query": query}, **more)
                    self.put("%s-%s" % (step, fault), data, absent=fault == "lose")
                    self.fired(rule)
        self.ok("sweep")  # an upload whose id nobody heard

    def test_error_inside_a_good_reply(self):
        body = "\n\n<?xml version=\"1.0\"?><Error><Code>InternalError</Code><Message>later</Message></Error>"
        rule = self.proxy.add("status", {"method": "POST", "query": "uploadId="}, status=200, body=body)
        self.put("it", self.bytes(LARGE))
        self.fired(rule)

    def test_upload_that_fails(self):
        """For good, or until the deadline: what was begun is taken back."""
        data = self.bytes(LARGE)
        for method, query in (("PUT", "partNumber=2"), ("POST", "uploadId=")):
            with self.subTest(method=method):
                rule = self.proxy.add("status", {"method": method, "query": query}, status=403, code="AccessDenied",
                                      message="not this one", count=None)
                self.refused(EACCES, "AccessDenied: not this one", "put", "it", data=data)
                self.fired(rule)
                self.proxy.do("clear")
                self.assertEqual(self.direct.uploads(self.bucket), [])
        self.begin(SDTRAIN_S3_DEADLINE_SEC="5")
        self.proxy.add("status", {"method": "PUT", "query": "partNumber=2"}, status=500, count=None)
        self.refused(EHOSTUNREACH, "InternalError", "put", "it", data=data)

    def test_killed_in_an_upload(self):
        """What a dead writer left is swept by the next one."""
        rule = self.proxy.add("stall", {"query": "partNumber=2"}, where="request", after=1000, count=None)
        self.send("put", "it", data=self.bytes(LARGE))
        self.proxy.do("wait", rule=rule)
        self.driver.kill()
        self.driver.wait()
        self.driver.stdin.close()
        self.driver.stdout.close()
        self.driver = None
        self.proxy.do("clear")
        self.assertEqual(len(self.direct.uploads(self.bucket)), 1)
        self.begin()
        self.assertEqual(self.ok("sweep")[0]["n"], 1)

    # ---- a reply that is lost after the server acted ----

    def test_lost_replies(self):
        for n in range(8):
            self.proxy.add("lose", {"method": "PUT|POST|DELETE"}, skip=2 * n)
        self.every_operation()
        self.ok("sweep")

    def test_lost_refusal(self):
        """Somebody else's object is there: a lost 412 must not become ours."""
        ours, theirs = self.bytes(SMALL), self.bytes(SMALL)
        self.put("it", theirs)
        for fault in ("lose", "status"):
            self.proxy.add(fault, {"method": "PUT"}, **({"acted": True, "status": 500} if fault == "status" else {}))
            self.refused(EEXIST, "exists", "put", "it", data=ours, absent=True)

    # ---- bytes that are turned, times that are wrong, silence ----

    def test_corrupted_uploads(self):
        """The server refuses what is not what was signed, and it is sent again."""
        small, large = self.bytes(SMALL), self.bytes(LARGE)
        for at in (0, SMALL // 2, -1):
            rule = self.proxy.add("corrupt", {"method": "PUT"}, where="request", at=at)
            self.put("small", small)
            self.fired(rule)
        rule = self.proxy.add("corrupt", {"method": "PUT", "query": "partNumber=2"}, where="request", at=PART // 2)
        self.put("large", large)
        self.fired(rule)

    def test_corrupted_downloads(self):
        """A whole object is held against its ETag and read again; what is never right is refused with both hashes."""
        data = self.bytes(SMALL)
        self.put("it", data)
        for at in (0, SMALL // 2, -1):
            rule = self.proxy.add("corrupt", {"method": "GET"}, at=at)
            self.assertEqual(self.get("it"), data)
            self.fired(rule)
        self.proxy.do("add", rules=[{"fault": "corrupt", "match": {"method": "GET"}, "at": at, "skip": at, "count": 1}
                                    for at in range(5)])
        self.refused(EIO, "ETag", "get", "it")
        self.assertEqual(self.get("it"), data)
        self.proxy.do("add", rules=[{"fault": "corrupt", "match": {"method": "GET"}, "at": 7, "count": 2}])
        self.assertEqual(self.get("it"), data)  # the same twice is not believed yet

    def test_stalls(self):
        """Longer than SDTRAIN_S3_STALL_SEC, at once in all phases of a request."""
        self.begin(SDTRAIN_S3_STALL_SEC="1")
        small, large = self.bytes(SMALL), self.bytes(LARGE)
        self.put("small", small)
        for method, where, after in (("GET", "reply", 0), ("GET", "reply", 1000), ("PUT", "request", 100),
                                     ("PUT", "request", 2000), ("PUT", "reply", 0)):
            with self.subTest(method=method, where=where, after=after):
                rule = self.proxy.add("stall", {"method": method}, where=where, after=after)
                if method == "GET":
                    self.assertEqual(self.get("small"), small)
                else:
                    self.put("small", small)
                self.fired(rule)
                self.proxy.do("clear")
        rule = self.proxy.add("stall", {"query": "partNumber=3"}, where="request", after=1000)
        self.put("large", large)
        self.fired(rule)
        rule = self.proxy.add("stall", {"method": "GET"}, where="reply", after=100000)
        self.assertEqual(self.ok("fetch", "large", n=LARGE)[1], large)
        self.fired(rule)

    def test_skewed_clock(self):
        for skew in (3600, -86400):
            rule = self.proxy.add("clock", count=None, skew_sec=skew)
            self.every_operation()
            refused = self.proxy.do("log", match={})["requests"]
            self.assertLess(sum(r["status"] == 403 for r in refused), 6)  # learned once, not at each request
            self.proxy.do("remove", id=rule)
            self.proxy.do("forget")
            self.start_over()

    # ---- a store that is away ----

    def test_away_for_a_while(self):
        data = self.bytes(SMALL)
        self.proxy.do("listen", open=False)
        self.send("put", "it", data=data)
        self.assertFalse(self.answered_within(2))
        self.proxy.do("listen", open=True)
        self.assertEqual(self.answer()[0]["r"], 0)
        self.expected["it"] = data

    def test_away_in_the_middle(self):
        data = self.bytes(LARGE)
        rule = self.proxy.add("stall", {"query": "partNumber=2"}, where="request", after=PART // 2)
        self.send("put", "it", data=data)
        self.proxy.do("wait", rule=rule)
        self.proxy.do("listen", open=False)
        self.assertFalse(self.answered_within(1))
        self.proxy.do("listen", open=True)
        self.assertEqual(self.answer()[0]["r"], 0)
        self.expected["it"] = data

    def test_away_for_good(self):
        self.begin(SDTRAIN_S3_DEADLINE_SEC="5")
        self.proxy.do("listen", open=False)
        self.refused(EHOSTUNREACH, "refused|reset|connect", "put", "it", data=b"x")
        self.refused(EHOSTUNREACH, "refused|reset|connect", "get", "it")
        self.proxy.do("listen", open=True)
        self.proxy.add("status", status=503, code="SlowDown", message="not today", count=None)
        self.refused(EHOSTUNREACH, "SlowDown", "get", "it")
        self.proxy.do("clear")
        self.put("it", b"x")

    # ---- who we are ----

    def test_refused_for_good(self):
        self.begin(AWS_SECRET_ACCESS_KEY="a-wrong-secret")
        self.secrets.append("a-wrong-secret")
        self.refused(EACCES, "SignatureDoesNotMatch.*; credentials: the environment", "get", "it")
        self.begin(AWS_ACCESS_KEY_ID="NOBODY")
        self.refused(EACCES, "/store/it: .*InvalidAccessKeyId.*; credentials: the environment", "put", "it", data=b"x")
        self.begin(bucket="another-bucket-that-is-not-there")
        self.refused(ENOENT, "no bucket another-bucket-that-is-not-there", "get", "it")
        self.refused(ENOENT, "no bucket another-bucket-that-is-not-there", "put", "it", data=b"x")

    def test_rotated_key(self):
        """The shared file has another key by the time the old one is refused."""
        path = os.path.join(self.folder, "credentials")

        def write(access_key, secret_key):
            with open(path + ".new", "w") as file:
                file.write("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n" % (access_key, secret_key))
            os.rename(path + ".new", path)
        write(self.server["access_key"], self.server["secret_key"])
        self.begin(AWS_SHARED_CREDENTIALS_FILE=path, AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
        data = self.bytes(SMALL)
        self.put("it", data)
        write("NOBODY", "nothing")
        rule = self.proxy.add("status", status=400, code="ExpiredToken", message="The provided token has expired.")
        self.refused(EACCES, "InvalidAccessKeyId.*; credentials: profile default of ", "get", "it")  # what it found instead
        self.fired(rule)
        write(self.server["access_key"], self.server["secret_key"])
        self.assertEqual(self.get("it"), data)
        write(self.server["access_key"], "nothing")
        rule = self.proxy.add("status", status=403, code="InvalidAccessKeyId")
        self.refused(EACCES, "SignatureDoesNotMatch.*; credentials: profile default of ", "get", "it")
        self.fired(rule)
        write(self.server["access_key"], self.server["secret_key"])
        self.assertEqual(self.get("it"), data)

    def test_expired_token(self):
        self.proxy.add("status", status=400, code="ExpiredToken", message="The provided token has expired.", count=None)
        self.refused(EACCES, "ExpiredToken: The provided token has expired", "put", "it", data=b"x")
        self.assertLess(self.proxy.do("count")["n"], 10)  # each once more, and not over and over
        self.proxy.do("clear")
        self.put("it", b"x", absent=True)
        self.assertEqual(self.ok("probe")[0]["n"], 1)  # nothing wrong was learned of the server meanwhile

    def test_renewed_on_the_way(self):
        """A container's endpoint gives credentials for a few seconds; requests go on, and one is told that they expired."""
        endpoint = CredentialsEndpoint(self.server, LIFE_SEC)
        self.addCleanup(endpoint.close)
        self.begin(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, AWS_CONTAINER_CREDENTIALS_FULL_URI=endpoint.url)
        data = self.bytes(SMALL)
        self.put("it", data)
        rule, asked = self.proxy.add("status", {"method": "GET"}, status=400, code="ExpiredToken"), endpoint.n_asked
        self.assertEqual(self.get("it"), data)
        self.fired(rule)
        self.assertGreater(endpoint.n_asked, asked)
        while endpoint.n_asked < asked + 3:
            self.assertEqual(self.get("it"), data)


if __name__ == "__main__":
    random.seed(1)
    unittest.main(verbosity=2)
