#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages: real controllers and a real etcd, a sink that fails in every way, and leaders that die at the worst moments.

Incidents are put into etcd as a leader puts them; one test has a node die for real. Every test ends with what counts:
one page for one incident, resolved when it is over."""
import json
import os
import signal
import time
import unittest

from lab import until
from pages import CONTROLLERS, KEY, PagesCase, make_certificate
from sink import Sink, seconds


class Pages(PagesCase):
    # ---- what is said

    def test_what_each_sink_is_told(self):
        self.tell(("pager", "pagerduty", {}), ("hook", "webhook", {"token_file": self.lab.write("keys/hook", "s3cret")}),
                   ("am", "alertmanager", {"labels": {"team": "ml"}, "least": "info"}), link="https://wiki/what")
        self.incident("x-4")
        self.settled_after_end("x-4")
        pager = [body for _, _, body, _, _ in self.sink.of("/pager")]
        details = {"incident": "x-4", "cause": "node-lost", "severity": "critical", "job": "", "node": "n3",
                   "generation": 4, "step": 12, "lost_steps": 2, "evidence": "its lease ran out", "rank": 2}
        action = pager[0]["payload"]["custom_details"].pop("action")
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.at / 1e6)) + ".%03dZ" % (self.at // 1000 % 1000)
        summary = "dev: node-lost on n3, rank 2: its lease ran out"
        self.assertEqual(pager, [
            {"routing_key": KEY, "event_action": "trigger", "dedup_key": self.key("x-4"), "client": "sdtrain",
             "payload": {"summary": summary, "source": "n3", "severity": "critical", "timestamp": at,
                         "component": "sdtrain", "group": "dev", "class": "node-lost", "custom_details": details},
             "links": [{"href": "https://wiki/what", "text": "What to do"}]},
            {"routing_key": KEY, "event_action": "resolve", "dedup_key": self.key("x-4")}])
        self.assertIn("goes on without the node", action)

        (opened, resolved) = self.sink.of("/hook")
        self.assertEqual(opened[1]["Authorization"], "Bearer s3cret")
        self.assertEqual(opened[1]["Idempotency-Key"], self.key("x-4") + "/triggered/critical")
        self.assertEqual(resolved[1]["Idempotency-Key"], self.key("x-4") + "/resolved/critical")
        self.assertEqual(resolved[2].pop("resolved_at")[:2], "20")
        self.assertEqual((opened[2].pop("event"), resolved[2].pop("event")), ("triggered", "resolved"))
        self.assertEqual(opened[2].pop("text"), "critical: %s\nWhat to do: %s\nhttps://wiki/what" % (summary, action))
        self.assertEqual(resolved[2].pop("text"), "resolved: " + summary)
        self.assertEqual(opened[2], {"version": 1, "key": self.key("x-4"), "cluster": "dev", "summary": summary,
                                     "at": at, "link": "https://wiki/what", "incident": dict(details, action=action)})
        self.assertEqual(opened[2], resolved[2])

        (opened, resolved) = self.sink.of("/am/api/v2/alerts")
        for message, is_open in ((opened, True), (resolved, False)):
            ((alert),) = message[2]
            self.assertEqual(alert["labels"], {"alertname": "SdtrainIncident", "cluster": "dev", "incident": "x-4",
                                               "cause": "node-lost", "severity": "critical", "node": "n3",
                                               "team": "ml"})
            self.assertEqual(alert["annotations"], {"summary": summary, "description": "its lease ran out",
                                                    "action": action})
            self.assertEqual((alert["startsAt"], alert["generatorURL"]), (at, "https://wiki/what"))
            self.assertEqual(seconds(alert["endsAt"]) > message[3] + 100, is_open, alert["endsAt"])

    def settled_after_end(self, name):
        self.wait_opened(name)
        until(lambda: all(d["state"] == "triggered" for d in self.alert(name)["deliveries"]), "all have heard")
        self.incident(name, over=True)
        self.settled(name)

    def test_severity(self):
        """Who only wants to be woken is not told of what recovers alone, until it does not."""
        self.tell(("pager", "pagerduty", {}), ("hook", "webhook", {"least": "info"}))
        self.incident("x-1", severity="info", cause="trainer-died")
        self.sink.wait(lambda: len(self.sink.opened) == 1, "the webhook hears of it")
        self.assertEqual(self.sink.of("/pager"), [])
        self.incident("x-1", severity="critical", cause="trainer-died")
        self.sink.wait(lambda: any(r[0] == "/pager" for r in self.sink.requests), "now it is critical")
        self.incident("x-1", severity="critical", cause="trainer-died", over=True)
        self.settled("x-1")
        self.assertEqual([d["state"] for d in self.alert("x-1")["deliveries"]], ["resolved", "resolved"])

    # ---- sinks that fail

    def test_every_failure(self):
        """Each is tried again; a stall costs the timeout, and one page comes of it all."""
        self.tell(("pager", "pagerduty", {}), timeout_sec=1)
        began = time.time()
        self.sink.expect("/pager", (429, {"Retry-After": "1"}), 500, "close", "garbage", "stall", "lost", 503)
        self.incident("x-4")
        self.sink.wait(lambda: len(self.sink.requests) >= 8, "eight tries")
        self.sink.wait(lambda: self.sink.requests[-1][4] == "accept", "it is accepted")
        times = [request[3] for request in self.sink.of("/pager")]
        self.assertGreaterEqual(times[1] - times[0], 0.9, "Retry-After is kept")
        self.assertGreater(times[0], began)
        self.incident("x-4", over=True)
        self.settled("x-4")
        self.check_one_page("x-4")

    def test_refusal_is_shown_and_mended(self):
        self.tell(("pager", "pagerduty", {}), retry_max_sec=300)
        self.sink.expect("/pager", *[400] * 100)
        self.incident("x-4")
        wrong = until(lambda: [text for text in self.status()["wrong"] if "sink" in text], "it is said what is wrong")
        self.assertEqual(wrong, ["sink pager has not taken the page of incident x-4 in 1 tries: "
                                 "HTTP 400: try  [1mharder"])
        (listed,) = json.loads(self.cluster.ctl("alerts", "list", "-o", "json"))
        self.assertEqual([(d["sink"], d["state"], d["attempts"]) for d in listed["sinks"]], [("pager", "failed", 1)])
        self.assertIn("pager", self.cluster.ctl("alerts", "list"))
        self.sink.behaviours.clear()
        self.reload("alerts file read again")
        self.wait_opened("x-4")
        self.incident("x-4", over=True)
        self.settled("x-4")
        self.assertEqual(json.loads(self.cluster.ctl("alerts", "list", "-o", "json")), [])
        self.assertEqual([text for text in self.status()["wrong"] if "sink" in text], [])

    def test_a_bad_file_changes_nothing(self):
        self.tell(("pager", "pagerduty", {}))
        with open(self.alerts) as file:
            good = json.load(file)
        self.lab.write("alerts.json", json.dumps({"sinks": [dict(good["sinks"][0], least="often")]}))
        code, text = self.lab.run(self.lab.path("bin/sdcontroller"), "--check-config", "--etcd", "h:1",
                                  "--alerts-file", self.alerts)
        self.assertEqual(code, 2)
        self.assertIn("alerts.json: sinks[0].least: often is not one of", text)
        self.reload("not reloaded: alerts_file: %s: sinks[0].least: often is not one of" % self.alerts)
        self.incident("x-4")
        self.wait_opened("x-4")

    def test_a_stalled_sink_delays_nobody(self):
        self.tell(("pager", "pagerduty", {}), ("hook", "webhook", {}), timeout_sec=1)
        self.sink.expect("/hook", *["stall"] * 50)
        names = ["x-%d" % i for i in range(12)]
        for name in names:
            self.incident(name)
        self.sink.wait(lambda: sum(r[0] == "/pager" for r in self.sink.requests) >= 12, "the pager hears of all")
        self.assertEqual([path for path, _ in self.sink.opened if path == "/hook"], [])
        self.sink.behaviours.clear()
        for name in names:
            self.incident(name, over=True)
        for name in names:
            self.settled(name)
            self.check_one_page(name)

    # ---- leaders that die

    def die(self, point):
        """The leader dies at the point and another one takes over."""
        self.tell(("pager", "pagerduty", {}), timeout_sec=1)
        for name in CONTROLLERS:
            self.cluster.kill(name)
        self.cluster.environment["SDTRAIN_FAULT"] = point
        self.begin(self.cluster.start, "controller1")
        del self.cluster.environment["SDTRAIN_FAULT"]
        self.addCleanup(self.begin, self.cluster.start, "controller1")
        until(lambda: self.status()["leader"] == "controller1", "controller1 leads")
        self.begin(self.cluster.start, "controller2")
        self.incident("x-4")
        self.leader(other_than="controller1")
        self.wait_opened("x-4")
        self.incident("x-4", over=True)
        self.settled("x-4")
        self.check_one_page("x-4")

    def test_leader_dies_before_it_sends(self):
        self.die("pages.send=kill")
        self.assertGreaterEqual(len(self.sink.requests), 2)

    def test_leader_dies_before_it_stores_the_acceptance(self):
        self.die("pages.accepted=kill")
        actions = [body["event_action"] for _, _, body, _, _ in self.sink.requests]
        self.assertEqual((actions[:2], actions[-1]), (["trigger", "trigger"], "resolve"), "said twice, one page")

    def test_leader_dies_and_it_is_over(self):
        """Nobody leads when the incident ends: the next leader resolves what the last one has opened."""
        self.tell(("pager", "pagerduty", {}), ("am", "alertmanager", {"repeat_sec": 1}), timeout_sec=1)
        self.incident("x-4")
        self.wait_opened("x-4")
        until(lambda: self.alert("x-4")["deliveries"][0]["state"] == "triggered", "it is stored")
        for name in CONTROLLERS:
            self.cluster.kill(name)
        self.incident("x-4", over=True)
        for name in CONTROLLERS:
            self.begin(self.cluster.start, name)
        self.settled("x-4")
        self.check_one_page("x-4")
        self.assertEqual(self.sink.open, set())

    # ---- signs of life, tests

    def test_signs_of_life(self):
        """They come from the leader, and end with etcd."""
        self.tell(("life", "heartbeat", {"every_sec": 1}), ("am", "alertmanager", {"watchdog": True, "repeat_sec": 1}))
        first = self.leader()
        self.sink.wait(lambda: len([r for r in self.sink.requests if r[0] == "/life"]) >= 2, "two of them")
        self.assertEqual(self.sink.requests[-1][2], self.sink.requests[-1][2])
        self.assertEqual(self.sink.of("/life")[0][2], {"version": 1, "event": "alive", "cluster": "dev"})
        (alert,) = self.sink.of("/am/api/v2/alerts")[0][2]
        self.assertEqual(alert["labels"], {"alertname": "SdtrainWatchdog", "cluster": "dev", "severity": "none"})
        self.cluster.kill(first)
        self.addCleanup(self.begin, self.cluster.start, first)
        self.leader(other_than=first)
        n = len(self.sink.of("/life"))
        self.sink.wait(lambda: sum(r[0] == "/life" for r in self.sink.requests) > n, "the next leader lives")
        os.kill(self.pid("etcd"), signal.SIGSTOP)
        try:
            # A leader knows for one TTL that it leads (2 s here); after that, silence.
            def is_silent():
                return time.time() - max(r[3] for r in self.sink.of("/life")) > 3
            until(is_silent, "no sign of life without etcd")
        finally:
            os.kill(self.pid("etcd"), signal.SIGCONT)
        n = len(self.sink.of("/life"))
        self.sink.wait(lambda: sum(r[0] == "/life" for r in self.sink.requests) > n, "etcd is back")

    def test_alerts_test(self):
        self.tell(("pager", "pagerduty", {}), ("hook", "webhook", {}), ("life", "heartbeat", {"every_sec": 3600}))
        text = self.cluster.ctl("alerts", "test")
        self.assertEqual([line.split() for line in text.splitlines()],
                         [["pager", "accepted"], ["hook", "accepted"], ["life", "accepted"],
                          ["3", "of", "3", "sinks", "accepted"]])
        actions = [body["event_action"] for _, _, body, _, _ in self.sink.of("/pager")]
        self.assertEqual(actions, ["trigger", "resolve"])
        self.assertIn("sdctl alerts test", self.sink.of("/pager")[0][2]["payload"]["summary"])
        self.assertEqual(self.sink.open, set())
        self.sink.expect("/hook", 403)
        code, text = self.cluster.ctl_code("alerts", "test", "--sink", "hook", "-o", "json")
        self.assertEqual(code, 1)
        got = json.loads(text)
        self.assertEqual((got["ok"], [(s["sink"], s["state"], s["text"][:8]) for s in got["sinks"]]),
                         (False, [("hook", "failed", "HTTP 403")]))
        code, text = self.cluster.ctl_code("alerts", "test", "--sink", "siren")
        self.assertEqual((code, text), (1, "refused: the leader's alerts_file names no sink siren\n"))

    def test_who_is_not_trusted_is_told_nothing(self):
        """TLS is verified: against the authority that the file names, and by name."""
        pem = make_certificate(self.lab, "sink.pem")
        sink = Sink(pem)
        self.addCleanup(sink.close)
        elsewhere = sink.url.replace("127.0.0.1", "localhost")
        self.tell(("trusted", "webhook", {"url": sink.url, "ca_file": pem + ".cert"}),
                  ("unknown", "webhook", {"url": sink.url}),
                  ("misnamed", "webhook", {"url": elsewhere, "ca_file": pem + ".cert"}))
        code, text = self.cluster.ctl_code("alerts", "test", "-o", "json")
        self.assertEqual(code, 1, text)
        said = {s["sink"]: (s["state"], s["text"]) for s in json.loads(text)["sinks"]}
        self.assertEqual(said["trusted"], ("resolved", ""))
        self.assertRegex(said["unknown"][1], "certificate")
        self.assertRegex(said["misnamed"][1], "localhost")
        self.assertEqual(len(sink.requests), 2)

    # ---- the whole way

    def test_a_node_dies(self):
        """From SIGKILL of a daemon to one page, which outlasts the job's recovery until the node is back."""
        self.tell(("pager", "pagerduty", {}))
        job = self.lab.job("paged", world={"min": 1, "max": 2}, train__steps=400)
        self.cluster.submit(job)
        self.cluster.wait(job, "step=10")
        self.cluster.kill("node1")
        self.sink.wait(lambda: len(self.sink.requests) == 1, "a page")
        until(lambda: (self.cluster.status(job)["incidents"] or [{}])[0].get("resolved"), "the job's recovery")
        self.assertEqual(len(self.sink.requests), 1)
        self.cluster.start("node1")
        self.sink.wait(lambda: len(self.sink.resolved) == 1, "a page, resolved")
        (trigger, resolve) = [body for _, _, body, _, _ in self.sink.requests]
        self.assertEqual((trigger["payload"]["class"], trigger["payload"]["source"]), ("node-lost", "node1"))
        self.assertEqual((trigger["event_action"], resolve["event_action"]), ("trigger", "resolve"))
        self.assertEqual(trigger["dedup_key"], resolve["dedup_key"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
