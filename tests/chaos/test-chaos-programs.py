#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program of others (kind "exec") whose processes, daemons and nodes die, stop, freeze and are cut off: no step of it is lost that
was registered, and none is done twice."""
import json
import os
import signal

from machines import BIN, Machines, until
from scenario import SIZE, ChaosCase, Row, main
from foreign import TRAINER, program_of


class Programs(ChaosCase):
    group = "programs"

    def test_programs(self):
        folder = self.lab.path("program")
        os.makedirs(folder)
        for name, text in (("train.py", TRAINER), ("faults", "")):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        self.cluster = Machines(self.lab, node={"allow_exec": True, "runner": os.path.join(BIN, "sdtrain-exec"),
                                                "trainer_environment": ["TESTLAB=" + self.lab.folder]})
        self.job = {"name": self.group, "kind": "exec", "world": {"min": 1, "max": SIZE},
                    "exec": {"command": ["python3", "train.py", "1000000", "10", "stages"], "dir": folder, "fence_s": 0, "leave_s": 20},
                    "checkpoint": {"uri": os.path.join(folder, "checkpoints")},
                    "recovery": {"max_failures_at_same_step": 50, "grow_interval_s": 0}}
        self.cluster.submit(self.job)
        self.records = self.settle("the job's start")
        self.programs()
        self.nodes()
        self.control()
        self.finish()

    def program(self, rank):
        return program_of(self.lab, self.job["name"], rank)

    def programs(self):
        for name, number, cause in (("program-kill", signal.SIGKILL, "trainer-died"), ("program-stop", signal.SIGSTOP, "hang")):
            self.records = self.settle("what was before " + name)
            nobody = [""] if cause == "hang" else []  # one that stops in a collective looks like those that wait for it
            self.scenario(name, lambda: os.kill(self.program(1), number),
                          Row("%s of a program" % signal.Signals(number).name, [cause], nodes=[self.node_of(1)] + nobody,
                              outcome="same nodes, next world"))
        self.records = self.settle("what was before runner-kill")
        self.scenario("runner-kill", lambda: os.kill(self.trainer(1), signal.SIGKILL),
                      Row("SIGKILL of a program's runner", ["trainer-died"], self.node_of(1), outcome="the program ends with it; same nodes, next world"))
        self.records = self.settle("what was before runner-stop")
        self.scenario("runner-stop", lambda: os.kill(self.trainer(1), signal.SIGSTOP),
                      Row("SIGSTOP of a program's runner", ["trainer-died", "hang"], self.node_of(1),
                          outcome="its dead-man timer ends both; same nodes, next world"))

    def nodes(self):
        self.records = self.settle("what was before power-loss")
        zero = self.node_of(0)
        self.scenario("power-loss-rank0", lambda: self.cluster.power_off(zero),
                      Row("silent power loss of the node of a program's rank 0", ["node-lost"], zero,
                          outcome="goes on without the node, with another rank 0; grows when it is back"),
                      lambda: self.cluster.power_on(zero))
        self.records = self.settle("power-loss")
        cut, pid = self.node_of(1), self.program(1)
        mine, etcd = [self.cluster.address[cut]], [self.cluster.address[name] for name in self.cluster.names["etcd"]]
        self.scenario("node-etcd", lambda: (self.cluster.network.cut(mine, etcd), self.cluster.network.cut(etcd, mine)),
                      Row("partition of a program's node from etcd, fence_s 0", ["node-lost", "trainer-died"], cut, most=2,
                          outcome="its program is dead before the next world goes; grows when it is back"),
                      lambda: (self.assertFalse(os.path.exists("/proc/%d" % pid)), self.cluster.network.mend()))
        self.records = self.settle("node-etcd")
        cut = [self.cluster.address[self.node_of(2)]]
        others = [self.cluster.address[self.node_of(rank)] for rank in range(2)]

        def inject():
            generation = self.world()["generation"]
            self.cluster.network.cut_both(cut, others)
            until(lambda: self.cluster.incidents(generation), "an incident")
            self.cluster.network.mend()
        self.scenario("node-peers", inject,
                      Row("partition of a program's node from its peers", ["hang"],
                          outcome="nobody is blamed; same nodes, next world once it is mended"))
        self.records = self.settle("node-peers")
        frozen = self.node_of(1)
        ghosts = [self.program(1)]

        def thaw():
            self.cluster.thaw(frozen)
            until(lambda: not os.path.exists("/proc/%d" % ghosts[0]), "the end of a program whose world has moved on")
        self.scenario("frozen-host", lambda: self.cluster.freeze(frozen),
                      Row("frozen host of a program, thawed after its world has moved on", ["node-lost"], frozen,
                          outcome="the program dies, the node joins again"), thaw)
        self.records = self.settle("frozen-host")
        node = self.node_of(2)
        self.scenario("daemon-kill", lambda: self.cluster.send(node, signal.SIGKILL),
                      Row("SIGKILL of sdtraind with a program", ["node-lost", "node-restarted"], node,
                          outcome="the program ends with it; goes on without the node, grows when it is back"),
                      lambda: (self.cluster.running[node].wait(60), self.cluster.start(node)))

    def control(self):
        self.records = self.settle("nodes")
        leader = until(self.cluster.controller_leader, "a leader")

        def kill_both():
            self.cluster.kill(leader)
            os.kill(self.program(1), signal.SIGKILL)
        self.scenario("leader-and-program", kill_both,
                      Row("SIGKILL of the leading controller and of a program", ["trainer-died"], self.node_of(1),
                          outcome="the other leader decides the next world"), lambda: self.cluster.start(leader))

    def compare(self, commit):
        """Each step of the final history was done once."""
        with open(os.path.join(commit["uri"], "state.json")) as file:
            state = json.load(file)
        self.assertEqual(state, {"step": commit["step"], "sum": commit["step"] * (commit["step"] + 1) // 2})
        print("%s: %d steps in %d worlds, each once" % (self.group, commit["step"], commit["generation"]), flush=True)


if __name__ == "__main__":
    main()
