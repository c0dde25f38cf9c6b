#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Partitions: of a node from etcd, of a node from its peers, of a controller, of a member of etcd; one way and both."""
import os
import time

from machines import LEASE_SEC, Machines, until
from scenario import ChaosCase, Row, full, main


class Partitions(ChaosCase):
    group = "network"

    def test_network(self):
        self.begin(Machines(self.lab, members=3))
        self.mend = self.cluster.network.mend
        self.from_etcd()
        self.from_peers()
        self.control()
        self.finish()

    def addresses(self, kind):
        return [self.cluster.address[name] for name in self.cluster.names[kind]]

    def from_etcd(self):
        for name, what in (("node-etcd", "both ways"), ("node-etcd-out", "what the node sends is lost"),
                           ("node-etcd-in", "what etcd sends is lost")):
            self.records = self.settle("what was before " + name)
            node = self.node_of(1)
            mine, etcd, pid = [self.cluster.address[node]], self.addresses("etcd"), self.trainer(1)

            def inject():
                if name != "node-etcd-in":
                    self.cluster.network.cut(mine, etcd)
                if name != "node-etcd-out":
                    self.cluster.network.cut(etcd, mine)

            def heal():
                self.mend()
                until(lambda: not os.path.exists("/proc/%d" % pid), "the end of a trainer of an older world")
            self.scenario(name, inject, Row("partition of a node from etcd, " + what, ["node-lost"], node,
                                            outcome="goes on without the node, grows when it is back"), heal)

    def from_peers(self):
        for name, what in (("node-peers", "both ways"), ("node-peers-out", "what it sends is lost")):
            self.records = self.settle("what was before " + name)
            node = self.node_of(2)
            mine = [self.cluster.address[node]]
            others = [a for a in self.addresses("node") if a not in mine]

            def inject():
                generation = self.world()["generation"]
                (self.cluster.network.cut_both if name == "node-peers" else self.cluster.network.cut)(mine, others)
                until(lambda: self.cluster.incidents(generation), "an incident")
                self.mend()
            self.scenario(name, inject, Row("partition of a node from its peers, " + what, ["hang", "peer-lost"],
                                            outcome="the world hangs, restarts, and goes on once it is mended"))

        if full():
            self.unreachable()

    def unreachable(self):
        """A partition that stays: no rank dies of it, but joining fails for 30 s. Then the node is named and left out."""
        self.records = self.settle("what was before node-unreachable")
        node = self.node_of(2)
        mine = [self.cluster.address[node]]

        def inject():
            generation = self.world()["generation"]
            self.cluster.network.cut_both(mine, [a for a in self.addresses("node") if a not in mine])
            told = until(lambda: [i["node"] for i in self.cluster.incidents(generation)
                                  if i["cause"] == "unreachable"], "the word that a node is unreachable", 120)
            self.assertEqual(told, [node])
        self.scenario("node-unreachable", inject,
                      Row("partition of a node from its peers, not mended", ["hang", "unreachable"], most=2,
                          outcome="hangs, cannot join for 30 s, then goes on without the node that its peers miss"),
                      self.mend)

    def control(self):
        old = until(self.cluster.controller_leader, "a leader")

        def new_leader(at):
            until(lambda: self.cluster.controller_leader() not in (None, old), "another leader", 90)
            return "its key in etcd", time.time() - at
        self.scenario("controller-etcd",
                      lambda: self.cluster.network.cut_both([self.cluster.address[old]], self.addresses("etcd")),
                      Row("partition of the leading controller from etcd", outcome="the other leads; no new world"),
                      self.mend, new_leader)
        member = until(self.cluster.member_leader, "a leader of etcd")

        def new_member(at):
            others = [name for name in self.cluster.names["etcd"] if name != member]
            until(lambda: self.cluster.member_leader_says(others) not in (None, member), "another leader of etcd", 90)
            took = time.time() - at
            time.sleep(2 * LEASE_SEC)
            return "etcd's election", took
        self.scenario("member-members",
                      lambda: self.cluster.network.cut_both(
                          [self.cluster.address[member]],
                          [a for a in self.addresses("etcd") if a != self.cluster.address[member]]),
                      Row("partition of etcd's leader from the other members",
                          outcome="its clients go to the others; nobody dies, no new world"), self.mend, new_member)


if __name__ == "__main__":
    main()
