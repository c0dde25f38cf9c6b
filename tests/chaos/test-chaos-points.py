#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Death at every fault point of checkpoint, commit and failover (docs/internals/testing-faults.md, "Fault points"): of a trainer, of the
daemon, of the leading controller. Also answers that are lost, a trainer that survives SIGKILL, and a full disk."""
import os
import signal
import time

import disk
from machines import Machines, is_gone, until
from scenario import ChaosCase, Row, main, said

# rank 0's, each at a visit that it reaches in a life of its own
RANK0 = ["data.open=kill@1", "data.read=kill@2", "loop.compute=kill@9", "checkpoint.copied=kill@2",
         "store.put.before=kill@9", "store.put.half=kill@9", "store.put.after=kill@9", "checkpoint.object=kill@9",
         "checkpoint.gathered=kill@2", "checkpoint.manifest.before=kill@2", "checkpoint.manifest.after=kill@2",
         "saver.saved=kill@2", "checkpoint.settle=kill@2", "checkpoint.retire.manifest=kill@1",
         "checkpoint.retire.object=kill@1"]
RANK1 = ["checkpoint.copied=kill@2", "checkpoint.object=kill@3", "store.put.half=kill@3"]
DAEMON = ["commit-write=kill@2", "commit-answer-lost=kill@2", "world.seen=kill@3", "world.dead=kill@1",
          "world.started=kill@2", "go.before=kill@2", "go.after=kill@2"]
CONTROLLER = ["decide.world.before", "decide.world.after", "decide.phase.before", "decide.phase.after",
              "decide.phase.before@2", "decide.phase.after@2"]


class Points(ChaosCase):
    group = "points"
    every_steps = 5

    def test_points(self):
        self.small = disk.make_small(self.lab, "small", 48)
        self.begin(Machines(self.lab), checkpoint__uri=os.path.join(self.small, "points"), checkpoint__keep_last=2)
        self.trainers()
        self.disk_full()
        self.survivor()
        self.controllers()
        self.daemons()
        self.finish()

    # ---- trainers ----

    def trainers(self):
        """Each life dies at the next point; the first one is ended here, to begin with."""
        for node, rank, points in (("node1", 0, RANK0), ("node2", 1, RANK1)):
            for point in points:
                name = "rank%d:%s" % (rank, point.partition("=")[0])
                if not self.wanted(name):
                    continue
                self.records = self.settle("what was before " + name)
                self.assertEqual(self.node_of(rank), node)
                self.lab.forget_faults()
                self.cluster.fault(node, point)
                os.kill(self.trainer(rank), signal.SIGKILL)  # the next life takes the fault
                self.lives(name, point, node, rank)

    def lives(self, name, point, node, rank):
        """One incident of the life that is ended here, one of the life that the point ends."""
        generation = self.world()["generation"]

        def two():
            incidents = self.cluster.incidents(generation)
            return incidents if len(incidents) >= 2 and incidents[-1].get("first_step_usec") else None
        try:
            incidents = until(two, "two incidents after " + name, 180)
            self.records = self.settle(name)
            told = [(i["cause"], i["node"], i["rank"]) for i in self.cluster.incidents(generation)]
            self.assertEqual(told, [("trainer-died", node, rank)] * 2)
        except AssertionError as e:
            self.keep_story(name, e)
        row = Row("rank %d killed at %s" % (rank, point.replace("=kill", "")), outcome="same nodes, next world")
        row.by = said(incidents[1])
        row.first_step = incidents[1]["first_step_usec"] / 1e6 - incidents[1]["at_usec"] / 1e6
        row.detected = incidents[1].get("detect_s")
        row.decided = self.decided_usec(incidents[1]["id"]) / 1e6 - incidents[1]["at_usec"] / 1e6
        self.note(name, row)

    # ---- stores and slots ----

    def disk_full(self):
        """Checkpoints fail, training goes on; once there is room, the next one is committed. What is freed meanwhile,
        by retention and by saves that failed, is taken at once."""
        name = "checkpoints/" + self.job["name"]

        def newest():
            return self.cluster.records("checkpoints/")[name]["commits"][-1]["step"]

        def has_trained_on():
            disk.fill(self.small)
            return self.cluster.records("progress/")["progress/" + self.job["name"]]["step"] > newest() + 15

        def watch(at):
            until(has_trained_on, "15 steps beside a full disk without a checkpoint", 120)
            full_until = newest()
            disk.empty(self.small)
            until(lambda: newest() > full_until, "a checkpoint once there is room", 120)
            generation = self.world()["generation"]
            incident = until(lambda: next((i for i in self.cluster.incidents(generation) if i["state"] == "resolved" and
                                           i["cause"] == "store-trouble"), None), "the end of the trouble", 120)
            return said(incident), max(0.0, incident["at_usec"] / 1e6 - at)
        self.scenario("disk-full", lambda: disk.fill(self.small),
                      Row("full disk under the checkpoints", outcome="training goes on; the next checkpoint that fits "
                          "is committed", trouble="store-trouble"), None, watch)

    def survivor(self):
        """A trainer that no signal ends: in a freezer of its own, as one that waits for a dead disk would be. The
        slot is lost, the node cordoned, the world goes on without it."""
        if not self.wanted("survivor"):
            return
        self.records = self.settle("what was before survivor")
        node, pid = self.node_of(2), self.trainer(2)
        hold = self.cluster.hold(pid)
        if not hold:
            print("skipped: survivor: no freezer of cgroup v1")
            return

        def heal():
            self.assertFalse(is_gone(pid))
            hold(False)
            until(lambda: is_gone(pid), "the end of the survivor", 90)
            until(lambda: not self.cluster.records("nodes/").get("nodes/" + node, {"lost_slots": "?"}).get("lost_slots"), "a clear slot", 90)
            self.cluster.ctl("node", "uncordon", node)
        self.scenario("survivor", lambda: hold(True),
                      Row("a trainer that survives SIGKILL", ["slot-lost"], node,
                          outcome="its slot is lost, the world goes on without it"), heal)

    # ---- controllers ----

    def controllers(self):
        """One that dies at the point becomes the leader, then a trainer is killed."""
        for point in CONTROLLER:
            name = "controller:" + point
            if not self.wanted(name):
                continue
            self.records = self.settle("what was before " + name)
            armed = until(self.cluster.controller_leader, "a leader")
            other = next(n for n in self.cluster.names["controller"] if n != armed)
            self.cluster.kill(armed)
            until(lambda: self.cluster.controller_leader() == other, "the other to lead", 90)
            where, _, visit = point.partition("@")
            self.cluster.start(armed, "%s=kill@%s" % (where, visit or 1))
            until(lambda: self.cluster.controller_count() == 2, "both controllers", 90)
            self.cluster.kill(other)
            until(lambda: self.cluster.controller_leader() == armed, "the armed one to lead", 90)
            self.cluster.start(other)
            node = self.node_of(1)
            self.scenario(name, lambda: os.kill(self.trainer(1), signal.SIGKILL),
                          Row("leading controller killed at %s, answering a trainer's death" % point, ["trainer-died"],
                              node, outcome="the other finds it done, or does it"),
                          lambda: (self.cluster.running[armed].wait(90), self.cluster.start(armed)))

    # ---- daemons ----

    def daemons(self):
        """Of rank 0's node. It dies alone, or in the middle of an answer to the death of rank 1."""
        for point in DAEMON:
            name = "daemon:" + point.partition("=")[0]
            if not self.wanted(name):
                continue
            self.records = self.settle("what was before " + name)
            node, victim = self.node_of(0), self.node_of(1)
            self.restart_daemon(node, fault=point)
            self.records = self.settle("the restart of %s with %s" % (node, point)) if not self.dies_alone(point) else \
                self.cluster.records()
            generation = self.world()["generation"]
            at = time.time()
            try:
                if not self.dies_alone(point) and self.cluster.alive(node):
                    os.kill(self.trainer(1), signal.SIGKILL)
                self.cluster.running[node].wait(120)
                self.cluster.start(node)
                self.records = self.settle(name)
                told = [(i["cause"], i.get("node")) for i in self.cluster.incidents(generation)]
                self.assertTrue(told, "an incident")
                self.assertLessEqual({i[0] for i in told}, {"trainer-died", "node-lost", "node-restarted", "peer-lost",
                                                            "ranks-lost"}, told)
                self.assertLessEqual({i[1] for i in told}, {node, victim, None, ""}, told)
            except Exception as e:
                self.keep_story(name, e)
            row = Row("sdtraind killed at %s" % point.replace("=kill", ""), outcome="%d incidents: %s" % (
                len(told), ", ".join("%s of %s" % one for one in told)))
            stepped = [i["first_step_usec"] for i in self.cluster.incidents(generation) if i.get("first_step_usec")]
            row.by, row.first_step = told[0][0], max(stepped) / 1e6 - at if stepped and not self.dies_alone(point) else None
            self.note(name, row)

    def dies_alone(self, point):
        return point.startswith("commit")


if __name__ == "__main__":
    main()
