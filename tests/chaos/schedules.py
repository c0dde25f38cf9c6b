# SPDX-License-Identifier: Apache-2.0
"""Schedules drawn from a seed: some faults one after the other, at once, or into each other's recovery, each undone
after a while."""
import os
import random
import signal
import time

from scenario import ChaosCase, Row

CAUSES = {"trainer-died", "hang", "node-lost", "node-restarted", "peer-lost", "ranks-lost", "start-timeout", "retry",
          "unreachable"}


class Fault:
    """What a schedule does to a target, and how it is undone."""

    def __init__(self, test, name, target, seconds):
        self.test, self.cluster, self.name, self.target, self.seconds = test, test.cluster, name, target, seconds

    def __str__(self):
        return "%s %s%s" % (self.name, self.target, " %.1f s" % self.seconds if self.undo else "")

    @property
    def undo(self):
        return getattr(self, "undo_" + self.name.replace("-", "_"), None)

    def do(self):
        getattr(self, "do_" + self.name.replace("-", "_"))()

    # A trainer that is not there at the moment cannot be hurt.
    def _trainer(self, number):
        r = self.cluster.records("ranks/")
        pids = [(int(key.split("/")[2]), rank["pid"]) for key, value in r.items() if key.endswith("/" + self.target)
                for rank in value["ranks"] if rank["state"] != "exited" and rank.get("pid")]
        if pids and max(pids)[1] in self.cluster.trainers():
            os.kill(max(pids)[1], number)

    def do_trainer_kill(self):
        self._trainer(signal.SIGKILL)

    def do_trainer_segv(self):
        self._trainer(signal.SIGSEGV)

    def do_trainer_stop(self):
        self._trainer(signal.SIGSTOP)

    def do_kill(self):
        self.cluster.kill(self.target)

    def undo_kill(self):
        self.cluster.start(self.target)

    def do_stop(self):
        self.cluster.send(self.target, signal.SIGSTOP)

    def undo_stop(self):
        self.cluster.send(self.target, signal.SIGCONT)

    def do_power(self):
        self.cluster.power_off(self.target)

    def undo_power(self):
        self.cluster.power_on(self.target)

    def do_freeze(self):
        self.cluster.freeze(self.target)

    def undo_freeze(self):
        self.cluster.thaw(self.target)

    def _cut(self, kind):
        mine = self.cluster.address[self.target]
        self.cluster.network.cut_both([mine], [self.cluster.address[name] for name in self.cluster.names[kind]
                                               if name != self.target])

    def do_cut_etcd(self):
        self._cut("etcd")

    def undo_cut_etcd(self):
        self.cluster.network.mend()

    def do_cut_peers(self):
        self._cut("node")

    undo_cut_peers = undo_cut_etcd

    def do_revoke(self):
        try:
            self.cluster.etcdctl("lease", "revoke", self.cluster.node_lease(self.target))
        except (AssertionError, IndexError, KeyError):
            pass  # it has none at the moment


FAULTS = {"node": ["trainer-kill", "trainer-kill", "trainer-segv", "trainer-stop", "kill", "stop", "power", "freeze",
                   "cut-etcd", "cut-peers", "revoke"],
          "controller": ["kill", "stop", "cut-etcd"], "etcd": ["kill", "stop", "freeze"]}


class Schedules(ChaosCase):
    """Kinds of targets with their weights, and what each may suffer; the tests play them by seed."""
    kinds, weights, faults, fault_class = ("node", "controller", "etcd"), (6, 2, 2), FAULTS, Fault
    causes = CAUSES

    def play_seeds(self, seeds):
        for seed in seeds:
            if self.wanted("seed-%d" % seed):
                self.schedule(seed)

    def draw(self, rng):
        """[(seconds to wait before, fault)]; a machine suffers one at a time, etcd keeps its quorum."""
        targets, drawn = [], []
        for _ in range(rng.randint(1, 4)):
            kind = rng.choices(self.kinds, self.weights)[0]
            free = [name for name in self.cluster.names[kind] if name not in targets]
            if not free or (kind == "etcd" and any(t.startswith("etcd") for t in targets)):
                continue
            targets.append(rng.choice(free))
            fault = self.fault_class(self, rng.choice(self.faults[kind]), targets[-1], rng.uniform(0.2, 5))
            drawn.append((rng.choice([0, 0, rng.uniform(0, 1), rng.uniform(1, 3)]), fault))
        return drawn

    def schedule(self, seed):
        name = "seed-%d" % seed
        self.records = self.settle("what was before " + name)
        generation = self.world()["generation"]
        drawn = self.draw(random.Random(seed))
        story = "; ".join("%sthen %s" % ("%.1f s, " % wait if wait else "", fault) for wait, fault in drawn)
        try:
            self.play(drawn)
            began = time.time()
            self.records = self.settle(name)
        except Exception as e:
            self.keep_story("%s (%s)" % (name, story), e)
        incidents = self.cluster.incidents(generation)
        causes = [incident["cause"] for incident in incidents]
        if not set(causes) <= self.causes:
            self.keep_story(name, AssertionError("%s gives the causes %s" % (story, causes)))
        row = Row("schedule of seed %d: %s" % (seed, story), outcome="%d worlds later as before" %
                  (self.world()["generation"] - generation))
        row.by, row.first_step = ", ".join(causes) or "none needed", time.time() - began
        self.note(name, row)

    def play(self, drawn):
        """Undoes what has had its time, between and after the faults."""
        pending = []
        for wait, fault in drawn:
            self.undo_until(pending, time.monotonic() + wait)
            fault.do()
            if fault.undo:
                pending.append((time.monotonic() + fault.seconds, fault))
        while pending:
            self.undo_until(pending, min(due for due, _ in pending))

    def undo_until(self, pending, end):
        for due, fault in sorted(pending, key=lambda one: one[0]):
            if due <= end:
                time.sleep(max(0.0, due - time.monotonic()))
                fault.undo()
                pending.remove((due, fault))
        time.sleep(max(0.0, end - time.monotonic()))
