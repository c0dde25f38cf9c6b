#!/usr/bin/env python3
"""Trainers, daemons and nodes die, hang, freeze and come back; the job goes on with the same bits."""
import os
import signal

from machines import Machines, until
from scenario import ChaosCase, Row, main


class Nodes(ChaosCase):
    group = "nodes"

    def test_nodes(self):
        self.begin(Machines(self.lab))
        self.trainers()
        self.daemons()
        self.machines()
        self.finish()

    def signal_trainer(self, rank, number):
        os.kill(self.trainer(rank), number)

    def trainers(self):
        for name, number, causes in [("trainer-kill", signal.SIGKILL, ["trainer-died"]),
                                     ("trainer-segv", signal.SIGSEGV, ["trainer-died"]),
                                     ("trainer-stop", signal.SIGSTOP, ["hang"])]:
            self.records = self.settle("what was before " + name)
            self.scenario(name, lambda: self.signal_trainer(1, number),
                          Row("%s of a trainer" % signal.Signals(number).name, causes, self.node_of(1),
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
                    self.cluster.running[node].wait(20)
                    self.cluster.start(node)
            self.scenario(name, inject, Row("%s of sdtraind" % signal.Signals(number).name, causes, node,
                                            outcome="goes on without the node, grows when it is back"), heal)

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


if __name__ == "__main__":
    main()
