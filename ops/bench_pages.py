# SPDX-License-Identifier: Apache-2.0
"""Figures of pages: two controllers, an etcd, and a sink that counts as PagerDuty does."""
import base64
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "build/release/bin")
BATCH = 25  # incidents at once
CONTROLLERS = ("controller1", "controller2")


def coded(text):
    return base64.b64encode(text.encode()).decode()


class Cluster:
    """sdctl dev without nodes; incidents are put as a leader puts them."""

    def __init__(self, folder, sink):
        self.folder = folder
        self.dev("down")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        text = self.dev("up", "--nodes", "0", "--controllers", "2")
        self.environment = dict(word.split("=", 1) for word in
                                next(line for line in text.splitlines() if line.startswith("export ")).split()[1:])
        self.url = "http://%s/v3/kv/" % self.environment["SDTRAIN_ETCD"]
        with open(os.path.join(folder, "key"), "w") as file:
            file.write("key\n")
        alerts = os.path.join(folder, "alerts.json")
        with open(alerts, "w") as file:
            json.dump({"timeout_sec": 1, "sinks": [{"name": "pager", "kind": "pagerduty", "url": sink.url + "/pager",
                                                    "routing_key_file": "key"}]}, file)
        for name in CONTROLLERS:
            path = os.path.join(folder, name, "config.json")
            with open(path) as file:
                config = dict(json.load(file), alerts_file=alerts)
            self.dev("kill-node", name)
            with open(path, "w") as file:
                json.dump(config, file)
            self.dev("start-node", name)

    def dev(self, *arguments):
        return subprocess.run([BIN + "/sdctl", "dev", *arguments, "--dir", self.folder], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True).stdout

    def ask(self, what, body):
        with urllib.request.urlopen(self.url + what, json.dumps(body).encode(), timeout=30) as reply:
            return json.load(reply)

    def put(self, number, at, over):
        record = {"v": 2, "id": "x-%d" % number, "state": "resolved" if over else "open", "severity": "critical",
                  "job": "", "cause": "node-lost", "node": "n%d" % number, "rank": -1,
                  "evidence": "its lease ran out", "at_usec": int(at * 1e6)}
        if over:
            record["resolved_usec"] = int(time.time() * 1e6)
        self.ask("put", {"key": coded("/sdtrain/dev/incidents/x-%d" % number), "value": coded(json.dumps(record))})

    def leader(self):
        text = subprocess.run([BIN + "/sdctl", "cluster", "status", "-o", "json"], stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, **self.environment)).stdout
        return json.loads(text)["leader"]

    def wait_for_leader(self, other_than=None):
        """One that does something: it answers a test."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.leader() not in ("", other_than):
                return self.leader()
            time.sleep(0.05)
        raise SystemExit("ops/bench: nobody leads within 60 s; logs: " + self.folder)


def pages(o, say, report, load):
    """An incident's record to the page's acceptance; one page each over 1,000 incidents with leader changes"""
    sys.path.insert(0, os.path.join(ROOT, "tests/system"))
    from sink import Sink
    total, changes = (100, 2) if o.quick else (1000, 20)
    before, sink = load(), Sink()
    cluster = Cluster(os.path.join(o.dir, "pages"), sink)
    try:
        cluster.wait_for_leader()
        steady, changing, done, killed = [], [], 0, 0
        while done < total:
            numbers = range(done, min(done + BATCH, total))
            due = killed < -(-changes * (done + BATCH) // total)
            began = {}
            victim = cluster.leader() if due else None
            for i, n in enumerate(numbers):
                began[n] = time.time()
                cluster.put(n, began[n], False)
                if due and i == BATCH // 2:
                    cluster.dev("kill-node", victim)
            keys = {n: ("/pager", "dev/x-%d/%d" % (n, int(began[n]))) for n in numbers}
            sink.wait(lambda: all(sink.opened[k] for k in keys.values()), "pages are opened", 120)
            (changing if due else steady).extend(sink.first[keys[n]] - began[n] for n in numbers)
            for n in numbers:
                cluster.put(n, began[n], True)
            sink.wait(lambda: all(sink.resolved[k] for k in keys.values()), "pages are resolved", 120)
            if due:
                killed += 1
                cluster.dev("start-node", victim)
                cluster.wait_for_leader()
            done += len(numbers)
            say("%d of %d incidents, %d leaders killed" % (done, total, killed))
        wrong = [key for key, n in sink.opened.items() if n != 1 or sink.resolved[key] != 1]
        if wrong or len(sink.opened) != total:
            raise SystemExit("ops/bench: not one page each: %d keys, %s" % (len(sink.opened), wrong[:10]))
        report("page_accepted", "s", 2.0, steady, before, incidents=total, leaders_killed=killed, keys=len(sink.opened),
               said_twice=sum(r[2]["event_action"] == "trigger" for r in sink.requests) - total,
               slowest_with_leader_change=round(max(changing), 3))
    finally:
        cluster.dev("down")
        sink.close()


FIGURES = [pages]
