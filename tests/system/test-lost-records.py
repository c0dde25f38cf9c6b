#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records that do not return by themselves, deleted, damaged, or put back as they once were, one at a time, under a
leader that has seen them and under one that has not: no checkpoint is lost, and no job stands still without an
incident whose action works.

A short version runs always; SDTRAIN_CHAOS_FULL=1 goes through all of it, 66 cases in twenty minutes, and prints what each
took, and how long after the harm the first incident of it and the first step of another world were."""
import base64
import json
import os
import subprocess
import time
import unittest

from lab import LabCase, until

FULL = os.environ.get("SDTRAIN_CHAOS_FULL") == "1"
KINDS = ("specs", "desired", "worlds", "phases", "checkpoints")
HARMS = ("deleted", "damaged", "older")
LEADERS = ("remembers", "new")
STEP_SEC = 0.1


class LostRecords(LabCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference = cls.lab.reference(cls.lab.job("reference", train__steps=60))

    def setUp(self):
        self.lab.forget_faults()
        self.cluster = self.lab.cluster(nodes=3, judged=False)
        self.addCleanup(self.cluster.down)
        self.cluster.configure("controller1", max_strikes=0)  # it is the test that kills, and more often than a bad node does

    # ---- etcd

    def etcdctl(self, *arguments, text=None):
        done = subprocess.run(["etcdctl", "--endpoints", self.cluster.etcd, *arguments], input=text,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                              env=dict(os.environ, ETCDCTL_API="3"))
        if done.returncode != 0:
            raise AssertionError("etcdctl %s: %s" % (" ".join(arguments), done.stdout))
        return done.stdout

    def key(self, kind, name):
        return "/sdtrain/dev/%s/%s" % (kind, name)

    def read(self, kind, name):
        """The record's text, None when it is not there."""
        found = json.loads(self.etcdctl("get", self.key(kind, name), "-w", "json")).get("kvs", [])
        return base64.b64decode(found[0]["value"]).decode() if found else None

    def put(self, kind, name, text):
        self.etcdctl("put", self.key(kind, name), text=text)

    def harm(self, kind, name, how, backup):
        if how == "deleted":
            self.etcdctl("del", self.key(kind, name))
        elif how == "damaged":
            self.put(kind, name, '{"v":2')
        else:
            self.put(kind, name, backup)

    # ---- a job under harm

    def committed(self, job):
        """Steps that have a manifest in the folder."""
        return [manifest["step"] for _, manifest in self.lab.manifests(job)]

    def begin(self, name, **changes):
        job = self.lab.job(name, train__steps=60, checkpoint__keep_last=4, checkpoint__every_steps=5,
                           recovery={"max_failures_at_same_step": 3, "grow_interval_s": 0}, **changes)
        self.slow(True)
        self.cluster.submit(job)
        return job

    def slow(self, on):
        """Steps of 0.1 s, so that something can happen between two of them."""
        self.lab.forget_faults()
        for node in ("node1", "node2", "node3"):
            self.cluster.fault(node, *(["loop.compute=slow@*"] * 6 if on else []))

    def reach(self, job, step):
        until(lambda: (self.status(job)["checkpoint"] or {"step": -1})["step"] >= step, "a checkpoint of step %d" % step)

    def status(self, job):
        code, text = self.cluster.ctl_code("job", "status", job["name"], "-o", "json")
        return json.loads(text) if code == 0 else {"checkpoint": None, "phase": None, "incidents": []}

    def kill_a_rank(self, job):
        pid = until(self.cluster.trainers, "a trainer")[0]
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass  # its world ended meanwhile: that is a death, too

    def check_end(self, job, what):
        outcome = self.cluster.finish(job, timeout=120)
        self.check_same(outcome, self.reference, what)

    def suffer(self, kind, how, leader, also_a_death):
        """One harm to one record of one job; the job ends as if nothing had been."""
        name = "-".join((kind, how, leader, "death" if also_a_death else "calm"))
        try:
            return self.suffer_it(name, kind, how, leader, also_a_death)
        except BaseException:
            self.cluster.ctl_code("job", "stop", name)  # one that has failed is in nobody's way
            raise

    def suffer_it(self, name, kind, how, leader, also_a_death):
        job = self.begin(name)
        self.reach(job, 5)
        backup = self.read(kind, name)
        self.reach(job, 15)
        most = max(self.committed(job))
        if leader == "new":
            self.cluster.kill("controller1")
        harmed = time.time()
        self.harm(kind, name, how, backup)
        since = self.leaders()[1]
        if leader == "new":
            self.cluster.start("controller1")
        began = time.monotonic()
        healed = kind == "checkpoints" and leader == "new" and self.healed(name, most, since)
        if also_a_death:
            self.kill_a_rank(job)
        if kind == "specs" and leader == "new" and how != "older":
            self.give_back_spec(job)
        self.check_kept(job, most, name)
        self.check_end(job, name)
        self.check_told(job, kind, how, leader, healed)
        told = [i for i in self.status(job)["incidents"] if i["at"] >= harmed]
        steps = [i["first_step_at"] - harmed for i in told if i["first_step_at"]]
        return "%.1f s; told after %s, stepped after %s" % (
            time.monotonic() - began, "%.2f s" % (told[0]["at"] - harmed) if told else "-",
            "%.2f s" % max(steps) if steps else "-")

    def give_back_spec(self, job):
        """Only who submitted it has the file: the incident says so, and what it says works."""
        until(lambda: "sdctl job start -f FILE" in self.etcdctl("get", "--prefix", "/sdtrain/dev/incidents/%s-" % job["name"]),
              "an incident that asks for the job file")
        self.cluster.submit(job)

    def check_kept(self, job, most, what):
        """Whatever is committed from now on, nothing beyond what had been is gone before it is passed."""
        def passed():
            steps = self.committed(job)
            self.assertTrue(steps and max(steps) >= most, "%s: %s, once %d" % (what, steps, most))
            return max(steps) > most
        until(passed, "%s: a checkpoint beyond step %d" % (what, most))

    def leaders(self):
        """(create revisions of the keys of those that lead or would, revision of the answer)"""
        answer = json.loads(self.etcdctl("get", "--prefix", "/sdtrain/dev/leader/", "-w", "json"))
        return [kv["create_revision"] for kv in answer.get("kvs", [])], answer["header"]["revision"]

    def healed(self, name, most, since):
        """Has the next commit, which writes the record anew, come before the new leader?"""
        def leads():
            keys, now = self.leaders()
            return keys and min(keys) > since and now
        revision = until(leads, "the new leader")
        found = json.loads(self.etcdctl("get", self.key("checkpoints", name), "--rev", str(revision), "-w", "json"))
        try:
            return json.loads(base64.b64decode(found["kvs"][0]["value"]))["commits"][-1]["step"] > most
        except (KeyError, ValueError):
            return False

    def check_told(self, job, kind, how, leader, healed):
        if how == "older" and kind in ("desired", "specs", "phases"):
            return  # the same words once more; of a phase, what its leader writes over
        if kind == "phases" and leader == "new" or healed:
            return  # another world, as after any other failure; nothing that anybody could have seen
        causes = [i["cause"] for i in self.status(job)["incidents"]]
        # The same world put back once more is none that its ranks may write in: they end. Who has not seen the first sees
        # no more than that.
        told = {"record-lost", "world-lost"}
        if kind == "worlds" and how == "older":
            told |= {"ranks-lost"} | ({"retry", "trainer-died"} if leader == "new" else set())
        self.assertTrue(told & set(causes), "%s %s: %s" % (kind, how, causes))

    @unittest.skipIf(FULL, "the grid has it")
    def test_checkpoints(self):
        """The record of what is committed, which costs most: with a death beside the harm."""
        for how, leader in (("deleted", "new"), ("damaged", "remembers")):
            with self.subTest(how=how, leader=leader):
                self.suffer("checkpoints", how, leader, True)

    def test_fields_of_later_versions(self):
        """A leader that puts a record back puts back what a later version had written into it."""
        job = self.begin("later")
        self.reach(job, 5)
        for kind in ("desired", "phases", "checkpoints"):
            def add():
                self.put(kind, "later", json.dumps(dict(json.loads(self.read(kind, "later")), later=kind)))
                return json.loads(self.read(kind, "later")).get("later") == kind
            until(add, "a field of a later version in " + kind)  # somebody may write just then, over what it had read
            told = len(self.status(job)["incidents"])
            self.harm(kind, "later", "deleted" if kind != "phases" else "damaged", None)
            until(lambda: len(self.status(job)["incidents"]) > told, "an incident about " + kind)
            text = until(lambda: self.read(kind, "later"), kind + " again")
            self.assertEqual(json.loads(text).get("later"), kind)
        self.check_end(job, "fields of later versions")

    @unittest.skipUnless(FULL, "long: SDTRAIN_CHAOS_FULL=1")
    def test_cordons(self):
        """A cordon that is lost is as if somebody had lifted it; none of the harms stops a job or the verbs."""
        for how in HARMS:
            for leader in LEADERS:
                with self.subTest(how=how, leader=leader):
                    try:
                        print("%-12s %-8s %-9s: %.1f s" % ("cordons", how, leader, self.suffer_cordon(how, leader)), flush=True)
                    finally:
                        self.cluster.ctl_code("job", "stop", "-".join(("cordons", how, leader)))
                        self.cluster.ctl_code("node", "uncordon", "node3", "--force")

    def suffer_cordon(self, how, leader):
        self.cluster.ctl("node", "cordon", "node3", "--reason", "first")
        backup = self.read("cordons", "node3")
        self.cluster.ctl("node", "cordon", "node3", "--reason", "second")
        job = self.begin("-".join(("cordons", how, leader)))
        self.reach(job, 5)
        if leader == "new":
            self.cluster.kill("controller1")
        self.harm("cordons", "node3", how, backup)
        if leader == "new":
            self.cluster.start("controller1")
        began = time.monotonic()
        self.kill_a_rank(job)
        self.check_end(job, "cordons %s %s" % (how, leader))
        if how == "damaged":  # whose it was nobody can tell, so that nobody else takes it away; how one does is said
            code, text = self.cluster.ctl_code("node", "uncordon", "node3")
            self.assertTrue(code != 0 and "--force" in text, text)
        self.cluster.ctl("node", "uncordon", "node3", *(["--force"] if how == "damaged" else []))
        self.cluster.ctl("node", "cordon", "node3", "--reason", "third")
        self.cluster.ctl("node", "uncordon", "node3")
        return time.monotonic() - began

    @unittest.skipUnless(FULL, "long: SDTRAIN_CHAOS_FULL=1")
    def test_every_record(self):
        for kind in KINDS:
            for how in HARMS:
                for leader in LEADERS:
                    for also_a_death in (False, True):
                        with self.subTest(kind=kind, how=how, leader=leader, death=also_a_death):
                            took = self.suffer(kind, how, leader, also_a_death)
                            print("%-12s %-8s %-9s %s: %s" % (kind, how, leader, also_a_death, took), flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
