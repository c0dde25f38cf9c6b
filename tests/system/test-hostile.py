#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile packets to every port of ranks, daemons and controllers while worlds change: the job's digest is that of the
undisturbed run, and nobody is blamed. And the world's secret: each world has another, and none is in a file, a log, or a
rank's memory once it trains.

In a network namespace of its own, whose every port is the test's; so it needs root, and says "skipped: ..." without.
SDTRAIN_CHAOS_FULL=1 sends a million packets in 60 s."""
import base64
import ctypes
import json
import os
import signal
import subprocess
import sys
import unittest

CLONE_NEWNET = 0x40000000
if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
    print("skipped: a network namespace needs root")
    sys.exit(0)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

from lab import BIN, LabCase, until  # noqa: E402

FULL = os.environ.get("SDTRAIN_CHAOS_FULL") == "1"
SECONDS, PACKETS, STEPS = (60, 1000000, 3000) if FULL else (6, 6000, 200)


def memory_of(pid):
    """All that a core file could hold."""
    found = []
    with open("/proc/%d/maps" % pid) as maps, open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            begin, end = (int(x, 16) for x in span.split("-"))
            if "r" not in rights or "[v" in line:
                continue
            try:
                memory.seek(begin)
                found.append(memory.read(end - begin))
            except (OSError, OverflowError):
                pass
    return b"".join(found)


class Hostile(LabCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reference = cls.lab.reference(cls.lab.job("reference", train__steps=STEPS), timeout=1800)

    def up(self, **options):
        self.cluster = self.lab.cluster(nodes=3, **options)
        self.addCleanup(self.cluster.down)

    def etcdctl(self, *arguments):
        return subprocess.run(["etcdctl", "--endpoints", self.cluster.etcd, *arguments], check=True,
                              env=dict(os.environ, ETCDCTL_API="3"), stdout=subprocess.PIPE, text=True).stdout

    def secret(self, job):
        """(secret, mod revision), ("", 0) when there is none."""
        kvs = json.loads(self.etcdctl("get", "-w", "json", "/sdtrain-secrets/dev/" + job["name"])).get("kvs")
        if not kvs:
            return "", 0
        return json.loads(base64.b64decode(kvs[0]["value"]))["secret"], kvs[0]["mod_revision"]

    def world_revision(self, job):
        text = self.etcdctl("get", "-w", "json", "/sdtrain/dev/worlds/" + job["name"])
        return json.loads(text)["kvs"][0]["mod_revision"]

    def running(self, job, generation):
        def look():
            status = self.cluster.status(job)
            done = status["phase"] == "succeeded"
            return (done or status["phase"] == "running" and status["generation"] >= generation) and status
        return until(look, "generation %d runs" % generation)

    def test_worlds_change_under_fire(self):
        self.up()
        job = self.lab.job("fired", train__steps=STEPS, recovery={"max_failures_at_same_step": 3, "grow_interval_s": 0})
        fire = subprocess.Popen([os.path.join(BIN, "hostile"), str(SECONDS), str(PACKETS)] + self.ports_of("etcd"),
                                stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (fire.poll() is None and fire.kill(), fire.wait(), fire.stdout.close()))
        self.cluster.submit(job)
        worlds, killed = 1, 0
        status = self.running(job, 1)
        with open("/proc/net/udp") as file:
            self.assertEqual(file.readlines()[1:], [], "somebody listens to UDP, where nobody sends")
        # A busy machine may take longer for a change than the fire lasts.
        while (fire.poll() is None or worlds < 3) and status["phase"] == "running" and status["step"] < STEPS - 30:
            if worlds % 2:
                ranks = status["world"]["ranks"]
                os.kill(ranks[worlds % len(ranks)]["pid"], signal.SIGKILL)
                killed += 1
            else:
                self.cluster.ctl("job", "resize", job["name"], "--world", "2" if status["world"]["size"] == 3 else "3")
            worlds = status["generation"] + 1
            status = self.running(job, worlds)
            worlds = status["generation"]
        outcome = self.cluster.finish(job, timeout=600)
        fire.wait(timeout=SECONDS + 60)
        said = json.loads(fire.stdout.read())
        print("hostile: %s, %d worlds, %d killed" % (said, worlds, killed))
        self.check_same(outcome, self.reference, "under fire")
        # How many come out in a short time is the machine's affair.
        self.assertGreaterEqual(said["packets"], 0.95 * PACKETS if FULL else 1000)
        self.assertGreaterEqual(worlds, 3)
        causes = sorted(i["cause"] for i in self.cluster.status(job)["incidents"])
        self.assertEqual(causes, ["trainer-died"] * killed)

    @staticmethod
    def ports_of(name):
        """Where this namespace's processes of that name listen."""
        inodes = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/comm" % pid) as file:
                    if file.read().strip() != name:
                        continue
                links = [os.readlink("/proc/%s/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%s/fd" % pid)]
            except OSError:
                continue  # it has ended
            inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
        with open("/proc/net/tcp") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        return [str(int(row[1].rsplit(":", 1)[1], 16)) for row in rows if row[3] == "0A" and row[9] in inodes]

    def test_the_secret_is_nowhere_else(self):
        self.up(patient=["node1", "node2", "node3"])
        self.cluster.fault("node3", "loop.compute=stop@12")
        job = self.lab.job("secret", recovery={"max_failures_at_same_step": 3, "grow_interval_s": 0})
        self.cluster.submit(job)
        stopped = self.lab.stopped()
        first, revision = self.secret(job)
        self.assertEqual(len(first), 64)
        self.assertEqual(revision, self.world_revision(job))
        for rank in self.cluster.status(job)["world"]["ranks"]:
            memory = memory_of(rank["pid"])
            self.assertGreater(len(memory), 1 << 20)
            self.assertFalse(first.encode() in memory, "the secret's text is in a rank's memory")
            self.assertFalse(bytes.fromhex(first) in memory, "the secret is in a rank's memory")
        os.kill(stopped, signal.SIGKILL)
        self.running(job, 2)
        second, revision = self.secret(job)
        self.assertEqual((len(second), revision), (64, self.world_revision(job)))
        self.assertNotEqual(first, second)
        self.cluster.finish(job)
        self.cluster.ctl("job", "delete", job["name"])
        until(lambda: self.secret(job) == ("", 0), "the secret to go with its job")
        self.cluster.down()
        for folder, _, names in os.walk(self.cluster.folder):
            if "/etcd" in folder:
                continue
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    text = file.read()
                for secret in (first, second):
                    self.assertFalse(secret.encode() in text, "%s/%s holds a secret" % (folder, name))


if __name__ == "__main__":
    unittest.main()
