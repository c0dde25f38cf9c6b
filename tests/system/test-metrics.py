#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus scrapes a whole cluster through a job with a failure; what it then knows is what has happened.
Rules, dashboard and runbooks speak of metrics that are really there."""
import json
import os
import re
import signal
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

from lab import SOURCE, LabCase, until
from sink import Sink

RULES = os.path.join(SOURCE, "ops/prometheus/sdtrain.rules.yml")
DASHBOARD = os.path.join(SOURCE, "ops/grafana/sdtrain.json")
CONFIG = """
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
- job_name: sdcontroller
  static_configs: [{targets: %s, labels: {cluster: dev}}]
- job_name: sdtraind
  static_configs: [{targets: %s, labels: {cluster: dev}}]
"""


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def names_in(expression):
    """The metrics that an expression reads, but for those that rules record (they have colons)."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    return {name for name in re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare)
            if re.match(r"(sdtrain|process)_", name) and ":" not in name}


def rules_of(text):
    """[(kind, name, expression, runbook)]: enough of YAML for our own file."""
    found = []
    for part in re.split(r"\n      - (?=alert|record)", text)[1:]:
        kind, name = re.match(r"(alert|record): (\S+)", part).groups()
        expression = re.search(r"\n        expr:(.*?)(?=\n        \w+:|\Z)", part, re.S).group(1)
        runbook = re.search(r"runbook: (\S+)", part)
        found.append((kind, name, expression, runbook and runbook.group(1)))
    return found


def expressions_of(dashboard):
    if isinstance(dashboard, dict):
        for key, value in dashboard.items():
            if key in ("expr", "definition") and isinstance(value, str):
                yield value
            else:
                yield from expressions_of(value)
    elif isinstance(dashboard, list):
        for value in dashboard:
            yield from expressions_of(value)


class Prometheus:
    """Debian's, in a folder of the lab, on a port of its own."""

    def __init__(self, lab, controllers, daemons):
        config = lab.write("prometheus/config.yml", CONFIG % (RULES, json.dumps(controllers), json.dumps(daemons)))
        self.log = lab.path("prometheus/log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                ["prometheus", "--config.file", config, "--storage.tsdb.path", lab.path("prometheus/data"),
                 "--web.listen-address", "127.0.0.1:0"], env=lab.environment, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL)
        self.url = "http://" + until(self.address, "Prometheus listens; its log is %s" % self.log)
        until(self.is_ready, "Prometheus is ready")

    def address(self):
        with open(self.log) as log:
            found = re.search(r'"Listening on" address=(\S+)', log.read())
        return found and found.group(1)

    def is_ready(self):
        try:
            return fetch(self.url + "/-/ready")
        except urllib.error.URLError:
            return None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)

    def query(self, expression):
        """[(labels, value)]"""
        url = self.url + "/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        return [(sample["metric"], float(sample["value"][1])) for sample in json.loads(fetch(url))["data"]["result"]]

    def value(self, expression):
        """Of the only sample there is; None without one."""
        found = self.query(expression)
        if len(found) > 1:
            raise AssertionError("%s: %s" % (expression, found))
        return found[0][1] if found else None

    def wait(self, expression):
        """Until it gives samples: `a == 1` gives none while a is 2."""
        return until(lambda: self.query(expression), expression)

    def becomes(self, expression, expected):
        """Within a few scrapes."""
        last = []
        try:
            until(lambda: last.append(self.value(expression)) or last[-1] == expected, expression)
        except AssertionError as e:
            everything = self.query(re.search(r"\w+_\w+", expression)[0])
            raise AssertionError("%s is %s, not %s: %s" % (expression, last[-1], expected, everything)) from e

    def rules(self):
        groups = json.loads(fetch(self.url + "/api/v1/rules"))["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


class Scraped(LabCase):
    def urls(self):
        """{name: address} of what dev status shows."""
        text = self.cluster.ctl("dev", "status", "--dir", self.cluster.folder)
        return dict(re.findall(r"^(\S+) .* http://(\S+)/metrics$", text, re.M))

    def up(self):
        self.cluster = self.lab.cluster(nodes=3, controllers=2, patient=["node1", "node3"])
        self.addCleanup(self.cluster.down)
        sink = Sink()
        self.addCleanup(sink.close)
        alerts = self.lab.write("alerts.json", json.dumps({"timeout_sec": 1, "sinks": [
            {"name": "hook", "kind": "webhook", "least": "info", "url": sink.url + "/hook"},
            {"name": "nobody", "kind": "webhook", "least": "info", "url": "http://127.0.0.1:1/"}]}))
        for controller in ("controller1", "controller2"):
            self.cluster.configure(controller, alerts_file=alerts, prices="*=36")
        self.addresses = self.urls()
        self.assertEqual(sorted(self.addresses), ["controller1", "controller2", "node1", "node2", "node3"])
        self.prometheus = Prometheus(self.lab, *[[address for name, address in sorted(self.addresses.items())
                                                  if name.startswith(kind)] for kind in ("controller", "node")])
        self.addCleanup(self.prometheus.stop)
        self.prometheus.wait("count(up == 1) == 5")
        self.prometheus.wait("sum(sdtrain_controller_leading) == 1")

    def train(self):
        """A job whose trainer on node2 dies in the middle of a step that cannot end; how far it was."""
        self.cluster.fault("node3", "loop.compute=stop@15")
        job = self.lab.job("seen", recovery={"max_failures_at_same_step": 3, "grow_interval_s": 0})
        self.cluster.submit(job)
        self.lab.stopped()
        ask = self.prometheus
        ask.wait('sdtrain_job_phase{job_name="seen",phase="running"} == 1')
        step = ask.wait('sdtrain_job_step{job_name="seen"} > 0')[0][1]
        ask.wait('sdtrain_job_ranks{job_name="seen",state="running"} == 3')
        ask.wait('sum(sdtrain_ranks{job_name="seen",state="running"}) == 3')
        ask.becomes("sdtrain_slots_free", 0)
        os.kill(self.cluster.rank_on(job, "node2")["pid"], signal.SIGKILL)
        self.cluster.finish(job)
        return step

    def check_story(self, step_before):
        ask = self.prometheus
        ask.wait('sdtrain_job_phase{job_name="seen",phase="succeeded"} == 1')
        ask.wait('sdtrain_job_step{job_name="seen"} == 40')
        self.assertLess(step_before, 40)
        for metric, expected in (("sdtrain_job_steps", 40), ("sdtrain_job_furthest_step", 40),
                                 ("sdtrain_job_checkpoint_step", 40), ("sdtrain_job_generation", 2),
                                 ("sdtrain_job_samples_seen", 160), ("sdtrain_job_world_ranks", 0)):
                ask.becomes(metric + '{job_name="seen"}', expected)
        ask.becomes("sum(sdtrain_incidents_total)", 1)
        ask.becomes('sdtrain_incidents_total{job_name="seen",cause="trainer-died"}', 1)
        ask.becomes('sdtrain_incidents_total{job_name="seen",cause="hang"}', 0)
        for phase in ("detect", "decide", "stop", "start", "restore", "replay"):
            ask.wait('sdtrain_recovery_phase_seconds_count{job_name="seen",phase="%s"} == 1' % phase)
        took = ask.value('sdtrain_recovery_seconds_sum{job_name="seen"}')
        ask.becomes('sdtrain_recovery_seconds_bucket{job_name="seen",le="+Inf"}', 1)
        parts = ask.value('sum(sdtrain_recovery_phase_seconds_sum{phase!="replay"})')
        self.assertTrue(0 < parts <= took + 0.01, (parts, took))
        goodput = ask.value('sdtrain_job_goodput_ratio{job_name="seen"}')
        self.assertTrue(0 < goodput <= 1, goodput)
        spent, lost = (ask.value('sdtrain_job_cost%s_dollars_total{job_name="seen"}' % word) for word in ("", "_lost"))
        self.assertTrue(0.02 * took < lost < spent, (spent, lost, took))  # a slot is a cent a second, and it had two or three
        ask.becomes('sdtrain_job_cost_dollars_per_hour{job_name="seen"}', 0)
        self.assertGreater(ask.value('sdtrain_job_loss{job_name="seen"}'), 0)
        ask.becomes('sdtrain_worlds_total{why="start"}', 1)
        ask.becomes('sdtrain_worlds_total{why="recovery"}', 1)
        ask.becomes('sdtrain_decisions_total{outcome="unknown"} and on (instance) '
                                   "sdtrain_controller_leading == 1", 0)
        ask.becomes('sdtrain_sink_messages_total{sink="hook",outcome="accepted"}', 2)  # triggered, resolved
        ask.becomes('sdtrain_sink_pages_waiting{sink="hook"}', 0)
        ask.becomes('sdtrain_sink_pages_failing{sink="nobody"}', 1)
        ask.wait("sum(sdtrain_watch_lag_seconds_count) == sum(sdtrain_decisions_total{outcome=\"done\"})")

    def check_trainers(self):
        """What came through the channel; the daemons' counters are those of the whole story."""
        ask = self.prometheus
        ask.becomes("sum(sdtrain_rank_starts_total)", 6)
        ask.becomes('sum(sdtrain_rank_exits_total{reason="done"})', 3)
        ask.becomes('sum(sdtrain_rank_exits_total{reason="signal"})', 1)
        self.assertGreaterEqual(ask.value("sum(sdtrain_trainer_step_seconds_count)"), 40)
        waited = ask.value("sum(sdtrain_trainer_data_wait_seconds_sum)")
        self.assertTrue(0 <= waited < ask.value("sum(sdtrain_trainer_step_seconds_sum)"))
        commits = ask.value('sum(sdtrain_checkpoint_commits_total{outcome="committed"})')
        self.assertGreaterEqual(commits, 3)  # the first, the last, and what the second world began with
        ask.becomes("sum(sdtrain_checkpoint_save_seconds_count)", commits)
        bytes_ = sum(os.path.getsize(os.path.join(folder, name))
                     for folder, _, names in os.walk(self.lab.path("checkpoints/seen")) for name in names)
        self.assertGreaterEqual(ask.value("sum(sdtrain_checkpoint_bytes_total)"), bytes_ * 0.9)  # two of them are kept
        self.assertGreater(ask.value('sum(sdtrain_store_request_seconds_count{operation="put"})'), commits)
        self.assertGreater(ask.value('sum(sdtrain_store_request_seconds_sum{operation="put"})'), 0)
        self.assertGreater(ask.value('sum(sdtrain_store_request_seconds_count{operation="get"})'), 0)
        ask.becomes("sum(sdtrain_checkpoint_save_failures_total)", 0)

    def check_next_leader(self):
        """It knows of the incident from the records."""
        ask = self.prometheus
        leader = ask.query("sdtrain_controller_leading == 1")[0][0]["instance"]
        self.cluster.kill(next(name for name, address in self.addresses.items() if address == leader))
        ask.wait('sdtrain_controller_leading{instance!="%s"} == 1' % leader)
        ask.wait('sdtrain_incidents_total{instance!="%s",job_name="seen",cause="trainer-died"} == 1' % leader)
        ask.wait('sdtrain_recovery_phase_seconds_count{instance!="%s",phase="restore"} == 1' % leader)
        ask.wait('absent(sdtrain_job_step{instance="%s"})' % leader)

    def check_nodes(self):
        ask = self.prometheus
        self.cluster.ctl("node", "cordon", "node1", "--reason", "seen by Prometheus")
        self.cluster.kill("node2")
        self.cluster.configure("node3", disk_min_bytes=10 ** 15)
        ask.wait('sdtrain_node_cordoned{node="node1",mode="cordon"} == 1')
        ask.wait('sdtrain_node_absent{node="node2"} == 1')
        ask.wait('sdtrain_node_unhealthy{node="node3",verdict="suspect"} == 1')
        ask.wait('sdtrain_probe_level{instance="%s"} == 1' % self.addresses["node3"])
        ask.becomes('sdtrain_nodes{state="up"}', 2)
        ask.becomes('up{instance="%s"}' % self.addresses["node2"], 0)

    def check_pages(self):
        """{family} of what the programs that live export."""
        families = set()
        for name, address in self.addresses.items():
            if self.prometheus.value('up{instance="%s"}' % address) == 0:
                continue
            page = fetch("http://%s/metrics" % address)
            done = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (0, ""), name)
            families |= set(re.findall(r"^# TYPE (\S+)", page, re.M))
            self.assertIn("in cluster" if name.startswith("node") else "leading", fetch("http://%s/healthz" % address))
        return families

    def check_names(self, families):
        known = families | {family + suffix for family in families for suffix in ("_bucket", "_sum", "_count")}
        with open(RULES) as file:
            for _, name, expression, _ in rules_of(file.read()):
                self.assertEqual(names_in(expression) - known, set(), name)
        with open(DASHBOARD) as file:
            for expression in expressions_of(json.load(file)):
                self.assertEqual(names_in(expression) - known, set(), expression)

    def check_rules(self):
        def all_evaluated():
            rules = self.prometheus.rules()
            broken = [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] == "err"]
            self.assertEqual(broken, [])
            return rules and all(rule["health"] == "ok" for rule in rules)
        until(all_evaluated, "every rule is evaluated")
        for controller in ("controller1", "controller2"):
            self.cluster.ctl_code("dev", "kill-node", controller, "--dir", self.cluster.folder)
        self.prometheus.wait('ALERTS{alertname="SdtrainNoLeader",cluster="dev"}')

    def test_a_story(self):
        self.up()
        step_before = self.train()
        self.check_story(step_before)
        self.check_trainers()
        self.check_next_leader()
        self.check_nodes()
        self.check_names(self.check_pages())
        self.check_rules()


class Files(unittest.TestCase):
    """What an operator installs."""

    def setUp(self):
        with open(RULES) as file:
            self.rules = rules_of(file.read())

    def promtool(self, *arguments):
        done = subprocess.run(["promtool", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_rules_do_what_they_say(self):
        self.assertIn("%d rules found" % len(self.rules), self.promtool("check", "rules", RULES))
        self.promtool("check", "config", os.path.join(SOURCE, "ops/prometheus/scrape.example.yml"))
        tests = os.path.join(SOURCE, "ops/prometheus/sdtrain.test.yml")
        self.promtool("test", "rules", tests)
        with open(tests) as file:
            text = file.read()
        self.assertEqual([name for kind, name, _, _ in self.rules if kind == "alert" and name not in text], [])

    def test_each_alert_has_its_runbook(self):
        named = set()
        for kind, name, _, runbook in self.rules:
            if kind == "record":
                continue
            path, _, anchor = runbook.partition("#")
            self.assertEqual(anchor, name.lower())
            named.add((path, name))
        written = set()
        for path in sorted({path for path, _ in named}):
            with open(os.path.join(SOURCE, path)) as file:
                written |= {(path, title) for title in re.findall(r"^## (\S+)$", file.read(), re.M)}
        self.assertEqual(named, written)

    def test_dashboard_is_one_that_grafana_takes(self):
        with open(DASHBOARD) as file:
            dashboard = json.load(file)
        recorded = {name for kind, name, _, _ in self.rules if kind == "record"}
        ids, variables = set(), {v["name"] for v in dashboard["templating"]["list"]}
        for panel in dashboard["panels"]:
            self.assertNotIn(panel["id"], ids)
            ids.add(panel["id"])
            place = panel["gridPos"]
            self.assertTrue(place["x"] + place["w"] <= 24 and place["h"] > 0, panel["title"])
            self.assertEqual(bool(panel.get("targets")), panel["type"] != "row", panel["title"])
        for expression in expressions_of(dashboard):
            self.assertEqual(set(re.findall(r"\$(\w+)", expression)) - variables, set() if "$__" not in expression
                             else {"__rate_interval"})
            self.assertEqual(set(re.findall(r"[a-z_]+:[a-z0-9_:]+", expression)) - recorded, set())


if __name__ == "__main__":
    unittest.main()
