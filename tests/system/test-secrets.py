#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers repeat what they were handed when they refuse: no secret is in a log, a journal, a record, an alert or in what a
program prints."""
import base64
import json
import os
import string
import unittest

from echoes import SHAPES, Echo, EchoEtcd, EchoMail, forms
from lab import BIN, Lab, until
from pages import CONTROLLERS, PagesCase, make_certificate

# Five secrets of each kind: letters alone; what a URL, JSON, HTML and base64 write in another way; a long one.
TAILS = ("7Jr2Lw9TxAbQ", "pw/with+and=chars~1", "a.b-c_d!e*f(g)h", "q'uo,te;am:p@s$", string.ascii_letters * 2 + "=")
TRIES = 5  # of a program that gives up before a busy machine has connected it
KINDS = ("path", "bearer", "pager", "mail", "s3", "sts", "instance", "proxy", "etcd")


def secrets(kind):
    tails = TAILS
    if kind == "instance":  # what a token may hold
        tails = tuple(tail.translate(str.maketrans("~!*()',;:@$", "===========")) for tail in TAILS)
    return ["%s%dZ%s" % (kind, i, tail) for i, tail in enumerate(tails)]


class Texts(unittest.TestCase):
    """All that was said anywhere, and the search for secrets there."""

    def assert_hidden(self, secret, texts, where):
        said = "\n".join(texts)
        for form in forms(secret):
            at = said.find(form)
            self.assertEqual(at, -1, "%s: %r in ...%s" % (where, form, said[max(at - 200, 0):at + 200]))


class Programs(Texts):
    """Stores, their credentials, proxies and etcd, each asked by a program of its own."""

    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.addClassCleanup(cls.lab.close)
        for name in list(cls.lab.environment):
            if name.startswith("AWS_") or name.lower().endswith("_proxy"):
                del cls.lab.environment[name]
        cls.plain = dict(cls.lab.environment)

    def said(self, command, server, **environment):
        """Returns what the program says of a server that refuses."""
        before = server.requests if isinstance(server, Echo) else server.refused
        self.lab.environment = dict(self.plain, **environment)
        after = before
        for _ in range(TRIES):
            if after > before:
                break
            code, text = self.lab.run(*command, timeout=60)
            after = server.requests if isinstance(server, Echo) else server.refused
            self.assertNotEqual(code, 0, text)
        self.assertGreater(after, before, text)
        return text

    def query_store(self, server, **environment):
        environment = dict({"AWS_ENDPOINT_URL": server.url, "AWS_REGION": "r1", "SDTRAIN_S3_DEADLINE_SEC": "5"},
                           **environment)
        return self.said([os.path.join(BIN, "sdprep"), "inspect", "s3://bucket/data"], server, **environment)

    def each(self, kind, server):
        self.addCleanup(server.close)
        for secret in secrets(kind):
            for server.shape in SHAPES:
                yield secret, "%s as %s" % (secret, server.shape)

    def test_store(self):
        server = Echo("s3")
        for secret, where in self.each("s3", server):
            text = self.query_store(server, AWS_ACCESS_KEY_ID="AK", AWS_SECRET_ACCESS_KEY="0" + secret,
                                  AWS_SESSION_TOKEN=secret)
            self.assertIn("***", text)
            self.assert_hidden(secret, [text], where)

    def test_sts(self):
        server = Echo("sts")
        for secret, where in self.each("sts", server):
            token = self.lab.write("token", secret + "\n")
            text = self.query_store(server, AWS_WEB_IDENTITY_TOKEN_FILE=token, AWS_ROLE_ARN="arn:aws:iam::1:role/r")
            self.assertIn("***", text, where)
            self.assert_hidden(secret, [text], where)

    def test_instance(self):
        server = Echo("metadata")
        for secret, where in self.each("instance", server):
            server.gives = secret
            text = self.query_store(server, AWS_ENDPOINT_URL="", AWS_EC2_METADATA_SERVICE_ENDPOINT=server.url)
            self.assertIn("***", text, where)
            self.assert_hidden(secret, [text], where)

    def test_container(self):
        server = Echo("metadata")
        for secret, where in self.each("instance", server):
            text = self.query_store(server, AWS_CONTAINER_AUTHORIZATION_TOKEN=secret, AWS_ENDPOINT_URL="",
                                  AWS_CONTAINER_CREDENTIALS_FULL_URI=server.url + "/v2/credentials/" + secret[::-1])
            self.assertIn("***", text)
            self.assert_hidden(secret, [text], where)
            self.assert_hidden(secret[::-1], [text], where)

    def test_proxy(self):
        server = Echo("s3")
        for secret, where in self.each("proxy", server):
            coded = "".join(c if c.isalnum() else "%%%02X" % ord(c) for c in secret)
            text = self.query_store(server, AWS_ENDPOINT_URL="http://store.example", AWS_ACCESS_KEY_ID="AK",
                                  AWS_SECRET_ACCESS_KEY="SK-0000",
                                  http_proxy="http://robot:%s@%s" % (coded, server.place))
            self.assertIn("***", text)
            self.assert_hidden(secret, [text], where)
            self.assert_hidden("robot:" + secret, [text], where)

    def test_etcd(self):
        for i, secret in enumerate(secrets("etcd")):
            password = self.lab.write("password", secret + "\n")
            os.chmod(password, 0o600)
            for token in ("", "token-" + secret[::-1]):
                server = EchoEtcd(secret, token)
                self.addCleanup(server.close)
                for server.shape in SHAPES:
                    where = "%s as %s" % (secret, server.shape)
                    text = self.said([os.path.join(BIN, "sdctl"), "node", "list"], server, SDTRAIN_ETCD=server.place,
                                     SDTRAIN_CLUSTER="dev", SDTRAIN_ETCD_USER="robot", SDTRAIN_ETCD_PASSWORD_FILE=password)
                    self.assertIn("***", text)
                    self.assert_hidden(secret, [text], where)
                    if token:
                        self.assert_hidden(token, [text], where)


class Sinks(PagesCase, Texts):
    """A cluster whose sinks refuse: what its controllers log and write, what sdctl says, and every record."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pem = make_certificate(cls.lab, "mail.pem")
        cls.web, cls.mail = Echo(), EchoMail(cls.pem, user="robot", password="none of them")
        cls.addClassCleanup(cls.web.close)
        cls.addClassCleanup(cls.mail.close)

    def key_file(self, name, secret):
        path = self.lab.write("keys/" + name, secret + "\n")
        os.chmod(path, 0o600)
        return path

    def sinks(self, i):
        """One of each kind: (name, kind, settings), and their secrets."""
        words = {kind: secrets(kind)[i] for kind in KINDS}
        path = self.key_file("path%d" % i, self.web.url + "/services/" + words["path"])
        bearer = self.key_file("bearer%d" % i, words["bearer"])
        pager = self.key_file("pager%d" % i, words["pager"])
        mail = self.key_file("mail%d" % i, words["mail"])
        used = [words[kind] for kind in ("path", "bearer", "pager", "mail", "proxy")]
        coded = "".join(c if c.isalnum() else "%%%02X" % ord(c) for c in words["proxy"])
        return used, [
            {"name": "path", "kind": "webhook", "url_file": path},
            {"name": "slack", "kind": "slack", "url_file": path},
            {"name": "bearer", "kind": "webhook", "url": self.web.url + "/hook", "token_file": bearer},
            {"name": "manager", "kind": "alertmanager", "url": self.web.url, "token_file": bearer},
            {"name": "pager", "kind": "pagerduty", "url": self.web.url + "/v2/enqueue", "routing_key_file": pager},
            {"name": "mail", "kind": "email", "url": self.mail.url, "from": "a@example.org", "to": ["b@example.org"],
             "user": "robot", "password_file": mail, "ca_file": self.pem + ".cert"},
            {"name": "proxy", "kind": "webhook", "url": "http://hooks.example/hook",
             "proxy": "http://robot:%s@%s" % (coded, self.web.place)},
        ]

    def everything(self):
        """Every record, and every file below the cluster's folder but its settings."""
        found = self.ask("range", {"key": base64.b64encode(b"\0").decode(), "range_end": base64.b64encode(b"\0").decode()})
        texts = [base64.b64decode(kv["value"]).decode("latin-1") for kv in found["kvs"]]
        for folder, _, names in os.walk(self.cluster.folder):
            if "/etcd" in folder[len(self.cluster.folder):]:
                continue  # the records are above; its pages keep what was overwritten
            for name in names:
                if name != "config.json":
                    try:
                        with open(os.path.join(folder, name), encoding="latin-1") as file:
                            texts.append(file.read())
                    except OSError:
                        pass  # a socket, or gone
        return texts

    def test_refusals(self):
        for i in range(len(TAILS)):
            used, sinks = self.sinks(i)
            self.lab.write("alerts.json", json.dumps({"sinks": sinks, "timeout_sec": 3, "retry_max_sec": 1}))
            self.reload("alerts file read again")
            for shape in SHAPES:
                self.web.shape = self.mail.shape = shape
                self.web.status = 503 if shape == "percent" else 400
                with self.subTest(secret=TAILS[i], shape=shape):
                    _, text = self.cluster.ctl_code("alerts", "test", "--timeout", "3", "-o", "json")
                    if shape != "percent":
                        said = {sink["sink"]: (sink["state"], sink["text"]) for sink in json.loads(text)["sinks"]}
                        self.assertEqual({state for state, _ in said.values()}, {"failed"}, said)
                        self.assertEqual([name for name, (_, words) in said.items() if "***" not in words], [])
                    for secret in used:
                        self.assert_hidden(secret, [text], "alerts test")
            name = "x-%d" % i
            self.incident(name)
            until(lambda: len((self.alert(name) or {}).get("deliveries", ())) == len(sinks) and
                  all(d.get("text") for d in self.alert(name)["deliveries"]), "every sink has said something")
            outputs = [self.cluster.ctl(*words) for words in (
                ("alerts", "list"), ("alerts", "list", "-o", "json"), ("cluster", "status"), ("job", "list"))]
            self.incident(name, over=True)
            for secret in used:
                self.assert_hidden(secret, outputs + self.everything(), "after %s" % name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
