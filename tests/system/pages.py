# SPDX-License-Identifier: Apache-2.0
"""A cluster whose leader notifies sinks. Incidents are put into etcd as a leader puts them."""
import base64
import json
import os
import signal
import time
import urllib.request

from lab import LabCase, until
from sink import Sink

KEY = "R0UT1NGKEY"
CONTROLLERS = ("controller1", "controller2")


def coded(text):
    return base64.b64encode(text.encode()).decode()


def make_certificate(lab, name, host="IP:127.0.0.1"):
    """A PEM file of a key and its own certificate, which NAME.cert has alone."""
    pem = lab.path(name)
    code, text = lab.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                         "/CN=sink", "-addext", "subjectAltName=" + host, "-keyout", pem, "-out", pem + ".cert")
    if code != 0:
        raise AssertionError(text)
    with open(pem, "a") as file, open(pem + ".cert") as certificate:
        file.write(certificate.read())
    return pem


class PagesCase(LabCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sink = Sink()
        cls.addClassCleanup(cls.sink.close)
        cls.keys = cls.lab.write("keys/pagerduty", KEY + "\n")
        cls.alerts = cls.lab.write("alerts.json", '{"sinks": []}')
        cls.cluster = cls.lab.cluster(nodes=3, controllers=2)
        cls.addClassCleanup(cls.cluster.down)
        for name in CONTROLLERS:
            cls.begin(cls.cluster.configure, name, alerts_file=cls.alerts)

    @classmethod
    def begin(cls, how, name, **settings):
        """Starts the controller and waits until it serves."""
        before = cls.log(name).count("cluster dev read")
        how(name, **settings)
        until(lambda: cls.log(name).count("cluster dev read") > before, name + " serves")

    def setUp(self):
        self.sink.forget()
        self.at = int(time.time() * 1e6)

    def tearDown(self):
        """Both kinds at once, so that nothing is left to tell."""
        self.ask("txn", {"success": [{"request_delete_range": {"key": coded("/sdtrain/dev/%s/" % kind),
                                                               "range_end": coded("/sdtrain/dev/%s0" % kind)}}
                                     for kind in ("incidents", "alerts")]})

    def tell(self, *sinks, **more):
        """The controllers tell these sinks: (name, kind, settings); returns when they have read so."""
        listed = []
        for name, kind, settings in sinks:
            sink = dict({"name": name, "kind": kind, "url": self.sink.url + "/" + name}, **settings)
            if kind == "pagerduty":
                sink["routing_key_file"] = self.keys
            listed.append(sink)
        self.lab.write("alerts.json", json.dumps(dict({"sinks": listed, "timeout_sec": 3, "retry_max_sec": 1}, **more)))
        self.reload("alerts file read again")
        self.leader()

    def reload(self, says):
        """Both controllers read the file and say so."""
        before = {name: self.log(name).count(says) for name in CONTROLLERS}
        for name in CONTROLLERS:
            os.kill(self.pid(name), signal.SIGHUP)
        for name in CONTROLLERS:
            until(lambda: self.log(name).count(says) > before[name], "%s says: %s" % (name, says))

    @classmethod
    def log(cls, name):
        with open(os.path.join(cls.cluster.folder, name, "log"), errors="replace") as file:
            return file.read()

    def pid(self, name):
        with open(os.path.join(self.cluster.folder, "dev.json")) as file:
            processes = json.load(file)["processes"]
        return next(p["pid"] for p in processes if p["name"] == name)

    def status(self):
        return json.loads(self.cluster.ctl("cluster", "status", "-o", "json"))

    def leader(self, other_than=""):
        """Waits until somebody leads and is alive: its name."""
        def look():
            name = self.status()["leader"]
            return name if name and name != other_than else None
        return until(look, "a leader beside " + (other_than or "nobody"))

    def ask(self, what, body):
        """etcd, by JSON."""
        url = "http://%s/v3/kv/%s" % (self.cluster.etcd, what)
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as reply:
            return json.load(reply)

    def put(self, key, value):
        self.ask("put", {"key": coded("/sdtrain/dev/" + key), "value": coded(json.dumps(value))})

    def incident(self, name, over=False, severity="critical", **more):
        record = dict({"v": 2, "id": name, "state": "resolved" if over else "open", "severity": severity, "job": "",
                       "cause": "node-lost", "node": "n3", "rank": 2, "generation": 4, "step": 12, "lost_steps": 2,
                       "evidence": "its lease ran out", "at_usec": self.at}, **more)
        if over:
            record["resolved_usec"] = int(time.time() * 1e6)
        self.put("incidents/" + name, record)

    def key(self, name):
        return "dev/%s/%d" % (name, self.at // 1000000)

    def alert(self, name):
        found = self.ask("range", {"key": coded("/sdtrain/dev/alerts/" + name)}).get("kvs")
        return json.loads(base64.b64decode(found[0]["value"])) if found else None

    def settled(self, name):
        return until(lambda: (self.alert(name) or {}).get("settled"), "everybody has heard of %s" % name)

    def wait_opened(self, name):
        self.sink.wait(lambda: self.sink.opened["/pager", self.key(name)], "a page for " + name)

    def check_one_page(self, name):
        counts = self.sink.opened["/pager", self.key(name)], self.sink.resolved["/pager", self.key(name)]
        self.assertEqual(counts, (1, 1), name)
