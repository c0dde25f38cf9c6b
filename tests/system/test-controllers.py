#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Leaders that die or freeze while a job trains: no new generation, the next one acts, a zombie decides nothing; and
what each controller recorded is decided again as it was."""
import json
import os
import signal
import unittest

from lab import BIN, LabCase, process_state, until

# A trainer stops itself here, in the middle of a step, so that the job cannot end meanwhile.
GATE = "loop.compute=stop@%d"


class Controllers(LabCase):
    def status(self):
        return json.loads(self.cluster.ctl("cluster", "status", "-o", "json"))

    def controller(self, name):
        with open(os.path.join(self.cluster.folder, "dev.json")) as file:
            return next(p["pid"] for p in json.load(file)["processes"] if p["name"] == name)

    def next_leader(self, old):
        return until(lambda: (lambda now: now if now not in ("", old) else None)(self.status()["leader"]),
                     "a leader after " + old)

    def test_leaders_die_and_freeze(self):
        reference = self.lab.reference(self.lab.job("reference"))
        self.cluster = self.lab.cluster(nodes=3, controllers=3, patient=["node1", "node2", "node3"])
        self.addCleanup(self.cluster.down)
        self.cluster.fault("node3", GATE % 15)
        job = self.lab.job("job", recovery={"max_failures_at_same_step": 3, "grow_interval_s": 0})
        self.cluster.submit(job)
        self.lab.stopped()

        first = self.status()["leader"]
        self.cluster.kill(first)
        second = self.next_leader(first)
        status = self.cluster.status(job)
        self.assertEqual((status["phase"], status["generation"], status["incidents"]), ("running", 1, []))
        self.cluster.start(first)

        zombie = self.controller(second)
        os.kill(zombie, signal.SIGSTOP)
        third = self.next_leader(second)
        os.kill(self.cluster.rank_on(job, "node2")["pid"], signal.SIGKILL)
        until(lambda: self.cluster.status(job)["generation"] == 2, "the third leader's answer")
        os.kill(zombie, signal.SIGCONT)
        until(lambda: len(self.status()["standby"]) == 2, "the zombie in the line again")
        self.assertEqual(self.status()["leader"], third)

        self.check_same(self.cluster.finish(job), reference, "leaders die and freeze")
        status = self.cluster.status(job)
        self.assertEqual(status["generation"], 2)
        self.assertEqual([(i["cause"], i["node"], i["resolved"]) for i in status["incidents"]],
                         [("trainer-died", "node2", True)])
        for name in (first, second, third):
            path = os.path.join(self.cluster.folder, name, "events.jsonl")
            code, text = self.cluster.ctl_code("simulate", path)
            self.assertEqual(code, 0, text)
            self.assertIn("each as it was decided then", text)
            if name != second:  # which only ever led while nothing happened
                self.assertIn("job job ", text)

    def test_leaders_that_die_on_the_same_records(self):
        """Every leader dies when it decides the job's first world. The third one stands still, says so, and leads once the job
        is gone."""
        names = ["controller1", "controller2", "controller3"]
        real = os.path.abspath(os.path.join(BIN, "sdcontroller"))
        for name in names:  # longer leases than dev's, so that the third one's pause, three of them, outlasts the test
            script = self.lab.write(name + "/sdcontroller", "#!/bin/sh\nSDTRAIN_FAULT='decide.world.before=kill@*' "
                                    "exec '%s' \"$@\" --lease-sec 8\n" % real)
            os.chmod(script, 0o755)
            self.lab.programs(os.path.dirname(script), name, "sdcontroller")
            self.addCleanup(os.remove, self.lab.path("programs", name + ".sdcontroller"))
        self.cluster = self.lab.cluster(nodes=1, controllers=3)
        self.addCleanup(self.cluster.down)
        until(lambda: len(self.status()["standby"]) == 2, "three controllers")
        line = [self.status()["leader"], *self.status()["standby"]]
        job = self.lab.job("deadly")
        self.cluster.submit(job)
        until(lambda: self.status()["leader"] == line[2], "the third leader")
        said = until(lambda: [wrong for wrong in self.status()["wrong"] if "decides nothing" in wrong], "its word")[0]
        self.assertIn("leader %s decides nothing: 2 leaders in a row died on the same records" % line[2], said)
        for name in line[:2]:
            self.assertIn(name + " at ", said)
            self.assertIn(os.path.join(self.cluster.folder, name, "events.jsonl"), said)
            self.assertIn(process_state(self.controller(name)), (None, "Z"))
        self.assertEqual(self.cluster.status(job)["generation"], 0, "nobody has decided anything")

        self.cluster.ctl("job", "delete", "deadly")
        until(lambda: not any("decides nothing" in wrong for wrong in self.status()["wrong"]), "the end of the standstill")
        until(lambda: "deadly" not in self.cluster.ctl("job", "list"), "the job's removal, which only a leader does")
        self.assertEqual(self.status()["leader"], line[2])
        with open(os.path.join(self.cluster.folder, line[2], "log")) as file:
            log = file.read()
        self.assertEqual(log.count("deciding nothing: 2 leaders in a row"), 1)

    def admit(self, nodes):
        """Every controller gets the list, by SIGHUP; the leader says so."""
        for name in ("controller1", "controller2"):
            path = os.path.join(self.cluster.folder, name, "config.json")
            with open(path) as file:
                config = dict(json.load(file), admit=nodes)
            with open(path, "w") as file:
                json.dump(config, file)
            os.kill(self.controller(name), signal.SIGHUP)
        wanted = nodes.split(",")
        until(lambda: all(node["admitted"] == (node["node"] in wanted) for node in self.nodes()), "the list " + nodes)

    def nodes(self):
        return json.loads(self.cluster.ctl("node", "list", "-o", "json"))

    def test_nodes_off_the_list(self):
        self.cluster = self.lab.cluster(nodes=3, controllers=2)
        self.addCleanup(self.cluster.down)
        until(lambda: len(self.nodes()) == 3, "three nodes")
        self.admit("node1,node2")
        job = self.lab.job("listed", recovery={"max_failures_at_same_step": 3, "grow_interval_s": 0}, train__steps=100000,
                           checkpoint__every_steps=1000)
        self.cluster.submit(job)
        self.cluster.wait(job, "running")
        self.assertEqual({rank["node"] for rank in self.cluster.status(job)["world"]["ranks"]}, {"node1", "node2"})
        open_ones = [wrong for wrong in self.status()["wrong"] if "not-admitted" in wrong]
        self.assertEqual(len(open_ones), 1)
        self.assertIn("node3", open_ones[0])

        # the other controller decides by its own list, which is the same
        old = self.status()["leader"]
        self.cluster.kill(old)
        self.next_leader(old)
        os.kill(self.cluster.rank_on(job, "node2")["pid"], signal.SIGKILL)
        until(lambda: self.cluster.status(job)["generation"] == 2, "another world")
        self.cluster.wait(job, "running")
        self.assertEqual({rank["node"] for rank in self.cluster.status(job)["world"]["ranks"]}, {"node1", "node2"})
        self.assertEqual(self.cluster.status(job)["reason"], "", "what had failed is history")
        self.cluster.start(old)

        # a longer list: the job grows to the node; the incident is over
        until(lambda: len(self.status()["standby"]) == 1, "the other controller")
        self.admit("node1,node2,node3")
        until(lambda: self.cluster.status(job)["world"]["size"] == 3, "growth to the third node")
        until(lambda: not any("not-admitted" in wrong for wrong in self.status()["wrong"]), "the incident's end")
        self.cluster.ctl("job", "stop", "listed")
        self.cluster.wait(job, "stopped")
        for name in ("controller1", "controller2"):
            code, text = self.cluster.ctl_code("simulate", os.path.join(self.cluster.folder, name, "events.jsonl"))
            self.assertEqual(code, 0, text)
            self.assertIn("each as it was decided then", text)


if __name__ == "__main__":
    unittest.main()
