# SPDX-License-Identifier: Apache-2.0
"""A fleet that lives on, and jobs that train on it while something is done to it.

Each test begins a job, does its harm while the job trains, waits until all is well again, and ends the job at the step
that it has come to. When all tests are done, every job's losses and digest are compared with those of one run that
nobody disturbed.
"""
import contextlib
import json
import os
import sys
import time
import unittest

from fleet import Fleet
from hosts import why_not
from lab import BIN, Lab, Outcome, until

SIZE = 3


class World:
    """What all test cases of a program share."""
    lab = fleet = None
    ended = []  # (step, job, digest, lines of metrics)


def set_up():
    reason = why_not()
    if reason:
        print("skipped: " + reason, flush=True)
        raise unittest.SkipTest(reason)
    World.lab = Lab()
    unittest.addModuleCleanup(World.lab.close)
    code, text = World.lab.run(os.path.join(BIN, "sdprep"), "index", World.lab.data("data", 96))
    if code != 0:  # the hosts may not write there
        raise AssertionError("sdprep exits %d: %s" % (code, text))
    World.fleet = Fleet(World.lab)
    unittest.addModuleCleanup(World.fleet.close)
    World.fleet.up(SIZE)


def check_bits():
    """One undisturbed life, led from one job's last step to the next one's; it must have been in each place."""
    lab = World.lab
    for step, job, digest, lines in sorted(World.ended, key=lambda ended: ended[0]):
        alone = dict(job, name="alone", checkpoint={"uri": lab.path("alone"), "every_steps": 1000000},
                     train=dict(job["train"], steps=step))
        with contextlib.suppress(FileNotFoundError):
            os.remove(lab.path("alone", "metrics.jsonl"))  # of the life before, which ended there
        code, text = lab.train(alone, timeout=900)
        if code != 0:
            raise AssertionError("the undisturbed run exits %d:\n%s" % (code, text[-2000:]))
        reference = Outcome("alone", lab.digest(alone), lab.metrics(alone))
        case = unittest.TestCase()
        case.assertEqual([line["loss_hex"] for line in lines], [line["loss_hex"] for line in reference.metrics], job["name"])
        case.assertEqual(digest, reference.digest, job["name"])
        print("%s: %d steps end with digest %s, as undisturbed" % (job["name"], step, digest), flush=True)


class HostsCase(unittest.TestCase):
    def setUp(self):
        self.lab, self.fleet, self.job = World.lab, World.fleet, None

    # ---- the job ----

    def begin(self, name):
        """Three ranks, and steps of 200 ms; SIZE + 1 grains, so that a world of two is not faster."""
        self.job = self.lab.job(name, world={"min": 1, "max": SIZE}, train__steps=1000000,
                                checkpoint__every_steps=20,
                                recovery={"max_failures_at_same_step": 50, "grow_interval_s": 0})
        self.addCleanup(self.restore)
        self.fleet.submit(self.job)
        self.steady()
        return self.job

    def restore(self):
        """After a test that failed the others find a fleet that is whole and idle."""
        if self.job is None:
            return
        print("%s did not end; the fleet is set right" % self.job["name"], flush=True)
        for host in self.fleet.hosts:
            host.set_right()
        for host in self.fleet.hosts:
            self.fleet.start(host)
        if self.fleet.try_ctl("job", "stop", self.job["name"])[0] == 0:  # it has not ended yet
            self.fleet.wait(self.job, "stopped", 120)

    def steady(self, size=SIZE, timeout=120):
        """The job's status, once it has stepped on that many ranks and nothing is open."""
        def look():
            self.status = status = self.fleet.status(self.job)
            if status["phase"] == "failed":
                raise AssertionError("%s failed: %s" % (self.job["name"], status["reason"]))
            ranks = status["world"]["ranks"]
            fine = (status["phase"] == "running" and len(ranks) == size and
                    all(rank["state"] == "running" for rank in ranks) and
                    all(incident["resolved"] for incident in status["incidents"]))
            return status if fine else None
        try:
            return until(look, "%s runs on %d ranks" % (self.job["name"], size), timeout, 0.1)
        except AssertionError as e:
            raise AssertionError("%s\n%s\n%s" % (e, json.dumps(self.status, indent=1), self.fleet.story())) from e

    def host_of(self, rank):
        """Where that rank of the last status trains."""
        node = next(r["node"] for r in self.status["world"]["ranks"] if r["rank"] == rank)
        return next(host for host in self.fleet.hosts if host.name == node)

    def progress(self):
        return self.fleet.status(self.job)["step"]

    def trains_on(self, steps=3):
        """Waits for more steps of the generation that there is."""
        before = self.fleet.status(self.job)
        until(lambda: self.progress() >= before["step"] + steps, "%d more steps" % steps, 60, 0.1)
        self.assertEqual(self.fleet.status(self.job)["generation"], before["generation"])

    def recovered(self, cause, host, generation):
        """The one incident since that generation, resolved, by cause and node; then the job has grown again."""
        def look():
            incidents = [i for i in self.fleet.status(self.job)["incidents"] if i["generation"] >= generation]
            return incidents if incidents and all(i["resolved"] for i in incidents) else None
        until(look, "an incident that is resolved", 120, 0.1)
        self.steady()
        told = [(i["cause"], i["node"]) for i in self.status["incidents"] if i["generation"] >= generation]
        self.assertIn(told, [[(c, host.name)] for c in ([cause] if isinstance(cause, str) else cause)],
                      json.dumps(self.status["incidents"], indent=1))

    def end(self):
        """Stops the job; what it has become is compared at the end of all tests."""
        name = self.job["name"]
        self.fleet.ctl("job", "stop", name)
        self.fleet.wait(self.job, "stopped")
        commit = self.fleet.status(self.job)["checkpoint"]
        with open(self.fleet.here(commit["uri"][len("file://"):])) as file:
            manifest = json.load(file)
        lines = []
        for segment in manifest["metrics"]:
            with open(os.path.join(self.job["checkpoint"]["uri"], segment["key"])) as file:
                lines += [json.loads(line) for line in file]
        self.assertEqual([line["step"] for line in lines], list(range(1, commit["step"] + 1)))
        World.ended.append((commit["step"], self.job, commit["digest"], lines))
        for host in self.fleet.hosts:
            self.no_orphans(host)
        self.job = None

    def no_orphans(self, host):
        """sdtraind and its keeper are all there is, in the unit's own cgroup."""
        def look():
            return sorted(host.processes("sdtraind.service").values()) == [("sdtraind", ""), ("sdtraind", "")]
        try:
            until(look, "", 15, 0.1)
        except AssertionError:
            self.fail("%s has %s" % (host.name, host.processes("sdtraind.service")))


class Result(unittest.TextTestResult):
    """Says what failed when it fails, and how long each test took."""

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        self.stream.writeln("    %.1f s" % (time.monotonic() - self.began))

    def addError(self, test, err):
        super().addError(test, err)
        self.stream.writeln(self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.stream.writeln(self.failures[-1][1])


def main():
    unittest.main(testRunner=unittest.TextTestRunner(stream=sys.stdout, descriptions=False, verbosity=2,
                                                     resultclass=Result))
