#!/usr/bin/env python3
"""Leaders that die or freeze while a job trains: no new generation, the next one acts, a zombie decides nothing; and
what each controller recorded is decided again as it was."""
import json
import os
import signal
import unittest

from lab import LabCase, until

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
                self.assertIn("JOB=job", text)


if __name__ == "__main__":
    unittest.main()
