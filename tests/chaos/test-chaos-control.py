#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Controllers and members of etcd die, hang, freeze, lose their quorum and their disks; leases are revoked. Training
goes on, nobody dies, and nothing is decided twice."""
import os
import signal
import time

import disk
from machines import LEASE_SEC, Machines, until
from scenario import SIZE, ChaosCase, Row, full, main

GRACE_SEC = 0.5    # that a leader bears with a node whose key is not there
DISK_SEC = 8       # as long as was seen to revoke every lease (60 of 60)
QUORUM_SEC = 60 if full() else 8


class Control(ChaosCase):
    group = "control"

    def test_control(self):
        self.disk = disk.make(self.lab, "disk", 512)
        self.begin(Machines(self.lab, members=3, disks={"etcd1": self.disk}))
        self.controllers()
        self.members()
        for _ in range(5):  # a renewal may happen to come in time
            self.leases()
        self.quorum()
        self.finish()

    def new_leader(self, old):
        def watch(at):
            until(lambda: self.cluster.controller_leader() not in (None, old), "another leader", 90)
            return "its key in etcd", time.time() - at
        return watch

    # ---- controllers ----

    def controllers(self):
        for number in (signal.SIGKILL, signal.SIGSEGV):
            old = self.cluster.controller_leader()
            self.scenario("controller-" + number.name[3:].lower(), lambda: self.cluster.kill(old, number),
                          Row("%s of the leading controller" % number.name, outcome="the other leads; no new world"),
                          lambda: self.cluster.start(old), self.new_leader(old))
        self.zombie_leader()

    def zombie_leader(self):
        """It stands still, a trainer dies, the other answers; then it wakes, and has nothing to say any more."""
        old = self.cluster.controller_leader()
        self.records = self.settle("controllers")
        node = self.node_of(1)

        def inject():
            self.cluster.send(old, signal.SIGSTOP)
            until(lambda: self.cluster.controller_leader() not in (None, old), "another leader", 90)
            os.kill(self.trainer(1), signal.SIGKILL)
        self.scenario("controller-stop", inject,
                      Row("SIGSTOP of the leading controller, SIGKILL of a trainer meanwhile", ["trainer-died"], node,
                          outcome="the other decides once; the zombie follows when it wakes"),
                      lambda: self.cluster.send(old, signal.SIGCONT))

    # ---- members of etcd ----

    def members(self):
        def seen_through(old):
            def watch(at):
                until(lambda: self.cluster.member_leader() not in (None, old), "another leader of etcd", 90)
                took = time.time() - at
                time.sleep(2 * LEASE_SEC)  # longer than any lease would live unrenewed
                self.steps_on()
                return "etcd's election", took
            return watch

        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP):
            old = until(self.cluster.member_leader, "a leader of etcd")
            stops = number == signal.SIGSTOP
            self.scenario("member-" + number.name[3:].lower(),
                          lambda: self.cluster.send(old, number) if stops else self.cluster.kill(old, number),
                          Row("%s of etcd's leader" % number.name, outcome="nobody dies, no new world",
                              # One that wakes may revoke leases that another leader has renewed (etcd#15247), and a node
                              # whose watches were on it learns that late.
                              trouble="node-lost" if stops else None, generations=[0, 1, 2] if stops else None),
                          lambda: (self.cluster.send(old, signal.SIGCONT) if stops
                                   else self.cluster.restart_member(old)),
                          seen_through(old))
        if self.disk:
            self.frozen_disk(seen_through)
        else:
            print("skipped: member-disk: no loop devices")

    def frozen_disk(self, seen_through):
        self.cluster.etcdctl("move-leader", "%x" % self.cluster.member_id("etcd1"),
                             members=[until(self.cluster.member_leader, "a leader of etcd")])
        until(lambda: self.cluster.member_leader() == "etcd1", "etcd1 to lead")
        self.records = self.settle("the move of etcd's leader")
        leases = {node: self.cluster.node_lease(node) for node in self.cluster.names["node"]}
        revoked = []

        def watch(at):
            time.sleep(max(0.0, DISK_SEC - (time.time() - at)))
            disk.thaw(self.disk)
            time.sleep(2 * LEASE_SEC)
            until(lambda: len(self.cluster.records("nodes/")) == len(leases), "all nodes, again")
            revoked[:] = [node for node in leases if self.cluster.node_lease(node) != leases[node]]
            row.outcome = row.outcome % (len(revoked), len(leases))
            self.steps_on()
            return "each node's new lease", None
        row = Row("disk of etcd's leader frozen for %d s, thawed" % DISK_SEC,
                  outcome="%d of %d nodes' leases were revoked; nobody dies, no new world")
        self.scenario("member-disk", lambda: disk.freeze(self.disk), row, None, watch)

    # ---- leases ----

    def leases(self):
        self.records = self.settle("members")
        node = self.node_of(1)
        lease, pid = self.cluster.node_lease(node), self.trainer(1)

        def again(at):
            until(lambda: "nodes/" + node in self.cluster.records("nodes/") and self.cluster.node_lease(node) != lease,
                  "the node under another lease", 90)
            took = time.time() - at
            self.steps_on()
            if took < GRACE_SEC:
                self.assertTrue(os.path.exists("/proc/%d" % pid), "its trainer runs on")
            else:  # on a slow machine the leader may rightly take it for lost meanwhile
                row.trouble, row.generations = "node-lost", [0, 1, 2]
                row.outcome = "a new lease, later than the leader bears with it"
            return "the daemon's keep-alive", took
        row = Row("lease of a live node revoked", outcome="a new lease, the same ranks; no new world")
        self.scenario("lease-revoked", lambda: self.cluster.etcdctl("lease", "revoke", lease), row, None, again)

    # ---- no quorum ----

    def quorum(self):
        """Two of three members stand still."""
        leader = until(self.cluster.member_leader, "a leader of etcd")
        frozen = [leader] + [name for name in self.cluster.names["etcd"] if name != leader][:1]
        name = "progress/" + self.job["name"]

        def inject():
            for member in frozen:
                self.cluster.freeze(member)

        def thaw():
            for member in frozen:
                self.cluster.thaw(member)
            until(self.cluster.member_leader, "a quorum")

        def watch(at):
            before, pids = self.records[name]["step"], [self.trainer(rank) for rank in range(SIZE)]
            time.sleep(QUORUM_SEC)
            self.assertTrue(all(os.path.exists("/proc/%d" % pid) for pid in pids), "trainers run on")
            thawing = time.time()
            thaw()
            progress = until(lambda: [r["step"] for r in self.cluster.records("progress/").values()
                                      if r["at_usec"] / 1e6 > thawing], "word of a step")
            row.outcome %= progress[0] - before
            self.assertGreater(progress[0] - before, 10, "steps while nobody could be told")
            self.steps_on()
            return "nobody has to", None
        row = Row("etcd without quorum for %d s" % QUORUM_SEC, outcome="%d steps meanwhile; no decision, no new world")
        self.scenario("no-quorum", inject, row, None, watch)

        self.records = self.settle("no-quorum")
        node = self.node_of(1)

        def inject_death():
            inject()
            os.kill(self.trainer(1), signal.SIGKILL)
            time.sleep(2 * LEASE_SEC)
            thaw()
        self.scenario("no-quorum-death", inject_death,
                      Row("SIGKILL of a trainer while etcd has no quorum (for %d s)" % (2 * LEASE_SEC),
                          ["trainer-died"], node, outcome="decided when the quorum is back"))


if __name__ == "__main__":
    main()
