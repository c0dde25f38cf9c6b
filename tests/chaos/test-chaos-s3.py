#!/usr/bin/env python3
"""Data and checkpoints on a real S3 server that goes away, lies and stalls, under a cluster whose nodes fail too.
--full: two minutes without the store, and 30 schedules instead of 4; seed-N runs one."""
import os
import signal
import time

from machines import Machines, until
from scenario import Row, full, main
from schedules import CAUSES, FAULTS, Fault, Schedules
from store import Store

SCHEDULES, AWAY_SEC = (30, 120) if full() else (4, 12)
TROUBLE = {"store-trouble", "store-unreachable"}

# What the writer is doing when it dies: the first request like this stalls, then it is killed.
WRITES = [("object-half", {"method": "PUT", "path": "safetensors$"}, {"where": "request", "after": 4000}),
          ("object-acted", {"method": "PUT", "path": "safetensors$"}, {"where": "reply", "after": 0}),
          ("metrics-acted", {"method": "PUT", "path": "metrics/"}, {"where": "reply", "after": 0}),
          ("manifest-before", {"method": "PUT", "path": "manifest.json$"}, {"where": "request", "after": 0}),
          ("manifest-half", {"method": "PUT", "path": "manifest.json$"}, {"where": "request", "after": 2000}),
          ("manifest-acted", {"method": "PUT", "path": "manifest.json$"}, {"where": "reply", "after": 0}),
          ("retire-list", {"method": "GET", "query": "list-type"}, {"where": "reply", "after": 0}),
          ("retire-before", {"method": "POST|DELETE"}, {"where": "request", "after": 0}),
          ("retire-acted", {"method": "POST|DELETE"}, {"where": "reply", "after": 0})]


class StoreFault(Fault):
    """The store suffers, too."""

    def do_down(self):
        self.test.store.proxy.do("listen", open=False)

    def undo_down(self):
        self.test.store.proxy.do("listen", open=True)

    def do_weather(self):
        self.test.store.weather()

    def undo_weather(self):
        self.test.store.weather(False)

    def do_stall(self):
        self.test.store.proxy.add("stall", after=200, count=4)

    undo_stall = undo_weather

    def do_lose(self):
        self.test.store.proxy.add("lose", {"method": "PUT|POST"}, count=3)

    def do_cut_store(self):
        self._cut("store")

    def undo_cut_store(self):
        self.cluster.network.mend()


class S3(Schedules):
    group = "s3"
    kinds, weights, fault_class = ("node", "controller", "store"), (4, 1, 4), StoreFault
    faults = dict(FAULTS, node=FAULTS["node"] + ["cut-store", "cut-store"],
                  store=["down", "weather", "weather", "stall", "lose"])
    causes = CAUSES | TROUBLE

    def test_s3(self):
        self.store = Store(self.lab)
        self.addCleanup(self.store.close)
        machines = Machines(self.lab)
        self.store.plug_in(machines)
        self.begin(machines, data=self.store.uri + "/data", checkpoint__uri=self.store.uri + "/s3", checkpoint__keep_last=2)
        self.writer_killed()
        self.replies_lost()
        self.away()
        self.bad_weather()
        self.play_seeds(SCHEDULES)
        self.finish()

    # ---- what is there ----

    def newest(self):
        """The step of the last commit."""
        return self.cluster.records("checkpoints/")["checkpoints/" + self.job["name"]]["commits"][-1]["step"]

    def step(self):
        return self.cluster.records("progress/")["progress/" + self.job["name"]]["step"]

    def commits_on(self, n=1):
        """That many checkpoints are committed from now on."""
        step = self.newest()
        until(lambda: self.newest() >= step + n * self.every_steps, "%d more checkpoints" % n, 90)

    # ---- scenarios ----

    def writer_killed(self):
        for name, match, where in WRITES:
            def inject():
                rule = self.store.proxy.add("stall", match, **where)
                self.store.proxy.do("wait", rule=rule, timeout=60)
                os.kill(self.trainer(0), signal.SIGKILL)
                self.store.proxy.do("clear")
            self.scenario("killed:" + name, inject, Row("writer killed, " + name.replace("-", " "), ["trainer-died"],
                                                         self.node_of(0), outcome="same nodes, next world"))

    def replies_lost(self):
        """Of whatever it wrote, the writer has to find out what has become."""
        for name, match in (("object", {"method": "PUT", "path": "safetensors$"}),
                            ("manifest", {"method": "PUT", "path": "manifest.json$"})):
            def inject():
                rule = self.store.proxy.add("lose", match)
                self.store.proxy.do("wait", rule=rule, timeout=60)
                self.commits_on(2)
            self.scenario("lost:" + name, inject, Row("answer to the put of a %s lost" % name,
                                                      outcome="looked up; nothing else happens"))

    def away(self):
        """Training goes on, an incident says what is wrong, and the first checkpoint that can be is committed."""
        if not self.wanted("away"):
            return
        self.records = self.settle("what was before away")
        generation, step, began = self.world()["generation"], self.step(), time.time()
        self.store.proxy.do("listen", open=False)
        time.sleep(AWAY_SEC)  # how long it is away is the fault itself
        trained, newest = self.step() - step, self.newest()
        self.store.proxy.do("listen", open=True)
        until(lambda: self.newest() > newest, "a checkpoint once the store is back", 90)
        self.records = self.settle("away")
        self.assertEqual(self.world()["generation"], generation)
        self.assertGreater(trained, 10)
        incidents = [i for i in self.cluster.incidents(generation) if i["cause"] in TROUBLE]
        row = Row("the store away for %d s" % AWAY_SEC, outcome="training goes on (%d steps); the next checkpoint is "
                  "committed" % trained)
        if incidents:
            row.by, row.detected = incidents[0]["cause"], incidents[0]["at_usec"] / 1e6 - began
        self.note("away", row)

    def bad_weather(self):
        """One request of three goes wrong, and a node dies meanwhile: it has to restore in that weather."""
        def inject():
            self.store.weather()
            self.commits_on(2)
            os.kill(self.trainer(1), signal.SIGKILL)
        self.scenario("weather", inject, Row("a trainer killed while every third request fails", ["trainer-died"],
                                             self.node_of(1), outcome="restored and committed all the same"),
                      lambda: (self.commits_on(2), self.store.weather(False)))

    # ---- the end ----

    def read(self, uri):
        return self.store.read(uri) if uri.startswith("s3://") else super().read(uri)

    def compare(self, commit):
        super().compare(commit)
        self.store.look("leftovers.py", self.job["checkpoint"]["uri"])


if __name__ == "__main__":
    main()
