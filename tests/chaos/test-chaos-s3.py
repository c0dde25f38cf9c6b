#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data and checkpoints on a real S3 server that goes away, lies and stalls, under a cluster whose nodes fail too.
--full: two minutes without the store, and 30 schedules instead of 3; seed-N runs one."""
import os
import signal
import time

from machines import Machines, system
from scenario import SELECTED, SIZE, Row, full, main
from schedules import CAUSES, FAULTS, Fault, Schedules
from store import Store

SEEDS, AWAY_SEC = (range(1, 31), 120) if full() else ((5, 7, 13), 25)
TROUBLE = {"store-trouble", "store-unreachable"}

# What a writer is doing when it dies: the first request like this stalls, then whoever sent it is killed. Names end
# with what the server has seen: nothing, half, or all of it.
WRITES = [("upload-acted", {"method": "POST", "query": "^uploads="}, {"where": "reply", "after": 0}),
          ("part-half", {"method": "PUT", "query": "partNumber=2"}, {"where": "request", "after": 1 << 20}),
          ("complete-acted", {"method": "POST", "query": "^uploadId="}, {"where": "reply", "after": 0}),
          ("manifest-acted", {"method": "PUT", "path": "manifest.json$"}, {"where": "reply", "after": 0}),
          ("retire-before", {"method": "POST", "query": "^delete="}, {"where": "request", "after": 0})]
MORE_WRITES = [("upload-before", {"method": "POST", "query": "^uploads="}, {"where": "request", "after": 0}),
               ("part-acted", {"method": "PUT", "query": "partNumber=1"}, {"where": "reply", "after": 0}),
               ("complete-before", {"method": "POST", "query": "^uploadId="}, {"where": "request", "after": 0}),
               ("object-acted", {"method": "PUT", "path": "bin$"}, {"where": "reply", "after": 0}),
               ("manifest-before", {"method": "PUT", "path": "manifest.json$"}, {"where": "request", "after": 0}),
               ("object-half", {"method": "PUT", "path": "bin$"}, {"where": "request", "after": 4000}),
               ("metrics-acted", {"method": "PUT", "path": "metrics/"}, {"where": "reply", "after": 0}),
               ("manifest-half", {"method": "PUT", "path": "manifest.json$"}, {"where": "request", "after": 2000}),
               ("retire-list", {"method": "GET", "query": "list-type"}, {"where": "reply", "after": 0}),
               ("retire-acted", {"method": "POST", "query": "^delete="}, {"where": "reply", "after": 0})]


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
    group, every_steps = "s3", 10
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
        self.corrupted_restore()
        self.bad_weather()
        if full() or SELECTED:
            self.away_at_a_start()
        self.play_seeds(SEEDS)
        self.finish()

    # ---- what is there ----

    def until(self, condition, what):
        """What takes seconds is asked after less often than elsewhere: a question is a process."""
        return system.until(condition, what, 120, pause=0.3)

    def newest(self):
        """The step of the last commit."""
        return self.cluster.records("checkpoints/")["checkpoints/" + self.job["name"]]["commits"][-1]["step"]

    def step(self):
        return self.cluster.records("progress/")["progress/" + self.job["name"]]["step"]

    def commits_on(self, n=1):
        """That many checkpoints are committed from now on."""
        step = self.newest()
        self.until(lambda: self.newest() >= step + n * self.every_steps, "%d more checkpoints" % n)

    # ---- scenarios ----

    def writer_killed(self):
        for name, match, where in WRITES + (MORE_WRITES if full() or SELECTED else []):
            row = Row("writer killed, " + name.replace("-", " "), ["trainer-died"], outcome="same nodes, next world")

            def inject():
                rule = self.store.proxy.add("stall", match, **where)
                self.store.proxy.do("wait", rule=rule, timeout=120)
                node, at = self.store.asks(rule), time.time()
                row.blamed = [node]
                os.kill(self.trainer(next(n for n in range(SIZE) if self.node_of(n) == node)), signal.SIGKILL)
                self.store.proxy.do("clear")
                return at
            self.scenario("killed:" + name, inject, row)

    def replies_lost(self):
        """Of whatever it wrote, the writer has to find out what has become."""
        for name, match in (("complete", {"method": "POST", "query": "^uploadId="}),
                            ("manifest", {"method": "PUT", "path": "manifest.json$"})):
            def inject():
                rule = self.store.proxy.add("lose", match)
                self.store.proxy.do("wait", rule=rule, timeout=120)
                self.commits_on(2)
            self.scenario("lost:" + name, inject, Row("answer to the put of %s lost" % name,
                                                      outcome="looked up; nothing else happens"))

    def away(self):
        """Training goes on, an incident says what is wrong, and the first checkpoint that can be is committed."""
        if not self.wanted("away"):
            return
        self.records = self.settle("what was before away")
        generation, step = self.world()["generation"], self.step()
        self.store.proxy.do("listen", open=False)
        time.sleep(AWAY_SEC)  # how long it is away is the fault itself
        trained, newest = self.step() - step, self.newest()
        self.store.proxy.do("listen", open=True)
        self.until(lambda: self.newest() > newest, "a checkpoint once the store is back")
        self.records = self.settle("away")
        self.assertEqual(self.world()["generation"], generation)
        self.assertGreater(trained, 10)
        incidents = [i for i in self.cluster.incidents(generation) if i["cause"] in TROUBLE]
        self.assertTrue(incidents or not full(), "nobody was told")
        row = Row("the store away for %d s" % AWAY_SEC, outcome="training goes on (%d steps); the next checkpoint is "
                  "committed" % trained)
        if incidents:
            row.by = incidents[0]["cause"]  # its time is when the trouble began, not when it was noticed
        self.note("away", row)

    def schedule(self, seed):
        """And something of it is kept, for the next one to build on."""
        super().schedule(seed)
        self.commits_on()

    def bad_weather(self):
        """One request of three goes wrong, and a node dies meanwhile: it has to restore in that weather. Data that take
        longer than this job lets a rank stand still are a hang of whoever waits for them."""
        def inject():
            self.store.weather()
            self.commits_on(2)
            at = time.time()
            os.kill(self.trainer(1), signal.SIGKILL)
            return at
        self.scenario("weather", inject, Row("a trainer killed while every third request fails",
                                             {"trainer-died", "hang"} | TROUBLE, most=4,
                                             outcome="restored and committed all the same"),
                      lambda: (self.commits_on(), self.store.weather(False)))

    def corrupted_restore(self):
        """What the new world reads first of its checkpoint has a turned bit."""
        def inject():
            self.rule = self.store.proxy.add("corrupt", {"method": "GET", "path": "(bin|safetensors)$"}, at=1000, count=3)
            at = time.time()
            os.kill(self.trainer(1), signal.SIGKILL)
            return at

        def heal():
            fired = {rule["id"]: rule["fired"] for rule in self.store.proxy.do("rules")["rules"]}[self.rule]
            self.assertEqual(fired, 3, "nothing was read that could be corrupted")
            self.store.proxy.do("clear")
        self.scenario("restore-corrupted", inject, Row("turned bits in what a world restores from", ["trainer-died"],
                                                       self.node_of(1), outcome="read again"), heal)

    def away_at_a_start(self):
        """A world that cannot restore ends; the job waits for the store, however long, and fails of nothing."""
        def inject():
            at = time.time()
            self.store.proxy.do("listen", open=False)
            os.kill(self.trainer(1), signal.SIGKILL)
            self.until(lambda: any(i["cause"] == "store-unreachable" for i in self.cluster.incidents()),
                       "an incident of the store")
            self.store.proxy.do("listen", open=True)
            return at
        self.scenario("away-at-a-start", inject, Row("a trainer killed while the store is away",
                                                     {"trainer-died"} | TROUBLE, most=9,
                                                     outcome="the job pauses, and goes on with the store"))

    # ---- the end ----

    def read(self, uri):
        return self.store.read(uri) if uri.startswith("s3://") else super().read(uri)

    def compare(self, commit):
        super().compare(commit)
        self.store.look("leftovers.py", self.job["checkpoint"]["uri"])


if __name__ == "__main__":
    main()
