#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainers, daemons and nodes die, hang, freeze and come back; the job goes on with the same bits."""
import contextlib
import os
import signal
import time

from machines import BIN, LEASE_SEC, Machines, until
from scenario import SIZE, ChaosCase, Row, main


class Nodes(ChaosCase):
    group = "nodes"

    def test_nodes(self):
        self.begin(Machines(self.lab))
        self.trainers()
        self.daemons()
        self.machines()
        self.clocks()
        self.two_at_once()
        self.everything_at_once()
        self.finish()

    def signal_trainer(self, rank, number):
        os.kill(self.trainer(rank), number)

    def trainers(self):
        for name, number, causes in [("trainer-kill", signal.SIGKILL, ["trainer-died"]),
                                     ("trainer-segv", signal.SIGSEGV, ["trainer-died"]),
                                     ("trainer-stop", signal.SIGSTOP, ["hang"])]:
            self.records = self.settle("what was before " + name)
            nobody = [""] if causes == ["hang"] else []  # one that stops in a collective looks like those that wait for it
            self.scenario(name, lambda: self.signal_trainer(1, number),
                          Row("%s of a trainer" % signal.Signals(number).name, causes, nodes=[self.node_of(1)] + nobody,
                              outcome="same nodes, next world"))

    def daemons(self):
        for name, number, causes in [("daemon-kill", signal.SIGKILL, ["node-lost", "node-restarted"]),
                                     ("daemon-segv", signal.SIGSEGV, ["node-lost", "node-restarted"]),
                                     ("daemon-stop", signal.SIGSTOP, ["node-lost"])]:
            self.records = self.settle("what was before " + name)
            node = self.node_of(2)

            def inject():
                self.cluster.send(node, number)

            def heal():
                if number == signal.SIGSTOP:
                    self.cluster.send(node, signal.SIGCONT)
                else:
                    self.cluster.running[node].wait(60)
                    self.cluster.start(node)
            self.scenario(name, inject, Row("%s of sdtraind" % signal.Signals(number).name, causes, node,
                                            outcome="goes on without the node, grows when it is back"), heal)

        self.records = self.settle("daemons")
        node, causes = self.node_of(2), ["node-restarted"]

        def restart():
            def incarnation():
                return self.cluster.records("nodes/").get("nodes/" + node, {}).get("incarnation")
            before, began = incarnation(), time.time()
            self.cluster.kill(node)
            self.cluster.start(node)
            until(lambda: incarnation() not in (None, before), "%s is registered again" % node)
            if time.time() - began > LEASE_SEC / 2:  # on a busy machine the lease may end before
                causes.append("node-lost")
            return began
        self.scenario("daemon-restart", restart, Row("SIGKILL of sdtraind, started again at once", causes, node,
                                                     outcome="same nodes, next world"))

    def machines(self):
        self.records = self.settle("daemons")
        node = self.node_of(1)
        self.scenario("power-loss", lambda: self.cluster.power_off(node),
                      Row("silent power loss of a node", ["node-lost"], node,
                          outcome="goes on without the node, grows when it is back"),
                      lambda: self.cluster.power_on(node))
        self.records = self.settle("power-loss")
        zero = self.node_of(0)
        self.scenario("power-loss-rank0", lambda: self.cluster.power_off(zero),
                      Row("silent power loss of rank 0's node", ["node-lost"], zero,
                          outcome="goes on without the node, grows when it is back"),
                      lambda: self.cluster.power_on(zero))
        self.records = self.settle("power-loss-rank0")
        frozen, pids = self.node_of(1), []

        def freeze():
            pids.append(self.trainer(1))
            self.cluster.freeze(frozen)

        def thaw():
            self.cluster.thaw(frozen)
            until(lambda: not os.path.exists("/proc/%d" % pids[0]), "the end of a trainer whose world has moved on")
        self.scenario("frozen-host", freeze,
                      Row("frozen host, thawed as a zombie after its world has moved on", ["node-lost"], frozen,
                          outcome="the zombie's trainer dies unheard, the node joins again"), thaw)

    def clocks(self):
        """Nothing is decided by realtime: it may jump by an hour, on a node and on the leading controller."""
        shim, step = os.path.join(BIN, "clock-step.so"), self.lab.path("clock")
        stepped = {"LD_PRELOAD": os.path.abspath(shim), "CHAOS_CLOCK": step}

        def set_clock(seconds):
            with open(step + ".new", "w") as file:
                file.write(str(seconds))
            os.rename(step + ".new", step)
        node = "node2"
        if not (self.wanted("clock-step") or self.wanted("clock-step-back-kill")):
            return
        set_clock(0)
        self.restart_daemon(node, **stepped)
        leader = self.cluster.controller_leader()
        for name in [n for n in self.cluster.names["controller"] if n != leader] + [leader]:
            self.cluster.kill(name)
            self.cluster.start(name, **(stepped if name == leader else {}))

        def jump(seconds, then=lambda: None):
            def inject():
                set_clock(seconds)
                then()
            return inject

        def see_through(at):
            time.sleep(2 * LEASE_SEC)
            return "nobody needs to", None
        for seconds in (3600, -3600):
            self.scenario("clock-step", jump(seconds),
                          Row("realtime of a node and a controller steps by %+d s" % seconds,
                              outcome="nothing happens"), None, see_through)
        self.records = self.settle("steps of clocks")
        rank = next(i for i in range(SIZE) if self.node_of(i) == node)
        self.scenario("clock-step-back-kill", lambda: os.kill(self.trainer(rank), signal.SIGKILL),
                      Row("SIGKILL of a trainer where realtime is an hour behind", ["trainer-died"], node,
                          outcome="same nodes, next world", timed=False))
        set_clock(0)

    def two_at_once(self):
        self.records = self.settle("what was before two at once")
        nodes = [self.node_of(rank) for rank in range(SIZE)]
        pids = [self.trainer(rank) for rank in range(2)]

        def inject():
            os.kill(pids[1], signal.SIGSTOP)
            os.kill(pids[1], signal.SIGSEGV)  # which waits until the trainer goes on
            os.kill(pids[0], signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):  # its node may have ended it already
                os.kill(pids[1], signal.SIGCONT)
        self.scenario("two-trainers", inject,
                      Row("SIGKILL and SIGSEGV of two trainers at once", ["trainer-died"], nodes=nodes[:2], most=2,
                          outcome="same nodes, next world"))
        self.records = self.settle("two-trainers")
        nodes = [self.node_of(rank) for rank in range(SIZE)]

        def off_and_kill():
            self.cluster.power_off(nodes[2])
            with contextlib.suppress(ProcessLookupError):  # the world may have moved on already
                os.kill(self.trainer(0), signal.SIGKILL)
        self.scenario("node-and-trainer", off_and_kill,
                      Row("power loss of a node, SIGKILL of a trainer elsewhere", ["node-lost", "trainer-died"],
                          nodes=[nodes[0], nodes[2]], most=2, outcome="goes on without the node, grows when it is back"),
                      lambda: self.cluster.power_on(nodes[2]))
        self.records = self.settle("node-and-trainer")
        nodes = [self.node_of(rank) for rank in range(SIZE)]
        leader = self.cluster.controller_leader()
        self.scenario("node-and-leader", lambda: (self.cluster.power_off(leader), self.cluster.power_off(nodes[1])),
                      Row("power loss of a node and of the leading controller", ["node-lost"], nodes[1],
                          outcome="the other controller sees it; goes on without the node"),
                      lambda: (self.cluster.power_on(leader), self.cluster.power_on(nodes[1])))
        self.records = self.settle("node-and-leader")
        nodes = [self.node_of(rank) for rank in range(SIZE)]

        def during_recovery():
            generation = self.world()["generation"]
            os.kill(self.trainer(2), signal.SIGKILL)
            until(lambda: self.cluster.records("worlds/")["worlds/" + self.job["name"]]["generation"] > generation,
                  "the world that recovers")
            self.cluster.power_off(nodes[1])
        self.scenario("during-recovery", during_recovery,
                      Row("power loss of a node while the world recovers from a dead trainer",
                          ["trainer-died", "node-lost"], nodes=nodes[1:], most=2,
                          outcome="goes on without the node, grows when it is back"),
                      lambda: self.cluster.power_on(nodes[1]))

    def everything_at_once(self):
        self.records = self.settle("what was before everything at once")
        nodes = list(self.cluster.names["node"])
        self.scenario("all-nodes", lambda: ([self.cluster.power_off(node) for node in nodes],
                                            until(lambda: self.cluster.answer("nodes/") == {}, "the end of all nodes"),
                                            [self.cluster.power_on(node) for node in nodes]),
                      # A leader that is late sees a node's end and its return at once: a restart.
                      Row("power loss of all nodes, back once all leases have run out", ["node-lost", "node-restarted"],
                          nodes=nodes, most=2,
                          outcome="waits for nodes, goes on where it was saved"))

        def outlast(at):
            time.sleep(2 * LEASE_SEC)
            self.cluster.start("etcd1")
            until(self.cluster.member_leader, "etcd to answer again")
            time.sleep(2 * LEASE_SEC)
            return "nobody has to", None
        self.scenario("only-member-kill", lambda: self.cluster.kill("etcd1"),
                      Row("SIGKILL of etcd's only member, started again after %d s" % (2 * LEASE_SEC),
                          outcome="training goes on; nobody dies, no new world"), None, outlast)


if __name__ == "__main__":
    main()
