#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sdctl job logs` of ranks on other nodes: each daemon's log folder lies where sdctl cannot look, so daemons are asked.

SDTRAIN_LOGS_FIGURES=1 also prints how long a line takes, what lies in etcd, and what a reader costs a daemon."""
import base64
import json
import os
import queue
import signal
import statistics
import subprocess
import threading
import time
import unittest

from lab import LabCase, until

FIGURES = os.environ.get("SDTRAIN_LOGS_FIGURES")


class Reader:
    """A `sdctl job logs` that runs, and each line that it has shown, with the time."""

    def __init__(self, case, *arguments):
        self.shown, self.told = queue.Queue(), []
        self.process = subprocess.Popen(case.command(*arguments), cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.thread = threading.Thread(target=self.read)
        self.thread.start()
        case.addCleanup(self.close)

    def read(self):
        for line in self.process.stdout:
            self.shown.put((time.monotonic(), line.decode()))

    def close(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()
        self.process.stdout.close()

    def until(self, part, timeout=60):
        """When the next line that holds this was shown."""
        end = time.monotonic() + timeout
        while True:
            try:
                at, line = self.shown.get(timeout=max(0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError("%r was not shown in:\n%s" % (part, "".join(self.told))) from None
            self.told.append(line)
            if part in line:
                return at, line


class Logs(LabCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        before = os.getcwd()
        cls.addClassCleanup(os.chdir, before)
        os.chdir(cls.lab.folder)  # of the daemons, too; sdctl runs elsewhere and finds nothing at that path
        cls.bearing = "--lease-sec 20 --hang-floor-sec 120 --log-dir /proc/self/cwd/NODE-logs"
        cls.cluster = cls.lab.cluster(nodes=2, bearing=cls.bearing)
        cls.addClassCleanup(cls.cluster.down)
        cls.job = cls.lab.job("far", train__steps=1000000, checkpoint__every_steps=1000, world__min=2, world__max=2)
        cls.cluster.submit(cls.job)
        cls.cluster.wait(cls.job, "running")
        cls.pids = {}

    def command(self, *arguments):
        return [self.lab.path("bin", "sdctl"), "job", "logs", "far", *arguments, "--etcd", self.cluster.etcd, "--cluster", "dev"]

    def logs(self, *arguments, code=0):
        done = subprocess.run(self.command(*arguments), cwd="/", capture_output=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout.decode(), done.stderr.decode()

    def log(self, rank, generation):
        return self.lab.path("node%d-logs/far/g%d/rank%d.log" % (rank + 1, generation, rank))

    def pid_of(self, rank, generation):
        def look():
            status = self.cluster.status(self.job)
            found = [r["pid"] for r in status["world"]["ranks"] if r["rank"] == rank and r["pid"]]
            return found[0] if status["generation"] == generation and found else None
        return until(look, "rank %d of generation %d" % (rank, generation))

    def write(self, rank, generation, text):
        """Into the pipe that rank prints to."""
        pid = self.pids.get((rank, generation)) or self.pid_of(rank, generation)
        self.pids[rank, generation] = pid
        with open("/proc/%d/fd/1" % pid, "wb", buffering=0) as pipe:
            pipe.write(text)

    def keys(self):
        done = subprocess.run(["etcdctl", "--endpoints", self.cluster.etcd, "get", "--prefix", "/sdtrain-logs/", "-w", "json"],
                              stdout=subprocess.PIPE, check=True, timeout=60, env=dict(os.environ, ETCDCTL_API="3"))
        return {base64.b64decode(kv["key"]).decode(): base64.b64decode(kv["value"])
                for kv in json.loads(done.stdout).get("kvs", [])}

    def node_of(self, rank):
        return next(r["node"] for r in self.cluster.status(self.job)["world"]["ranks"] if r["rank"] == rank)

    def test_1_a_rank_elsewhere_is_read(self):
        self.write(1, 1, b"hello \x1b]0;title\x07 there\n\xff and no end")
        until(lambda: "no end" in self.logs("--rank", "1")[0], "what was printed")
        out, err = self.logs("--rank", "1")
        self.assertIn("\nhello ?]0;title? there\n? and no end\n", out)
        self.assertEqual(err, "")
        self.write(1, 1, b"\n")
        out, _ = self.logs()
        self.assertRegex(out, r"(?m)^rank 0   .*\n(.*\n)*rank 1   hello ")
        self.assertEqual(self.logs("--rank", "2", code=3)[1], "sdctl: job far has 2 ranks, no rank 2\n")
        self.assertIn("there is no generation 9 yet", self.logs("--generation", "9", code=3)[1])
        self.assertIn("--all is of all ranks", self.logs("--rank", "1", "--all", code=2)[1])
        until(lambda: self.keys() == {}, "nothing left in etcd", 10)

    def test_2_a_huge_log_shows_its_end(self):
        path = self.log(1, 1)
        size = os.stat(path).st_size
        os.truncate(path, 100 * 2**30)  # sparse
        with open(path, "ab") as file:
            file.write(b"\nbehind it\n")
        out, err = self.logs("--rank", "1")
        self.assertTrue(out.endswith("\nbehind it\n"), out[-100:])
        self.assertLess(len(out), 300000)
        self.assertRegex(err, r"rank 1: \d{12} bytes before this are not shown; all that is kept is in /proc/self/cwd/node2-logs/far/g1 on node2")
        os.truncate(path, size)

    def test_3_lines_are_followed_into_the_next_generation(self):
        reader = Reader(self, "--all", "-f")
        self.write(1, 1, b"first\n")
        reader.until("rank 1   first\n")
        until(lambda: len([key for key in self.keys() if "/lines/" in key]) == 2, "both nodes' answers")
        self.assertEqual(len([key for key in self.keys() if "/asks/" in key]), 2)
        times = []
        for i in range(20 if FIGURES else 3):
            began = time.monotonic()
            self.write(i % 2, 1, b"line %d\n" % i)
            at, _ = reader.until("rank %d   line %d\n" % (i % 2, i), 10)
            times.append(at - began)
        self.assertLess(statistics.median(times), 5)  # <= 1 s where nothing else runs
        if FIGURES:
            self.figures(times)
        self.write(1, 1, b"last words\n")
        os.kill(self.pids[1, 1], signal.SIGKILL)
        reader.until("rank 1   last words\n")
        reader.until("--- generation 2, 2 ranks\n")
        self.write(1, 2, b"again\n")
        reader.until("rank 1   again\n")
        reader.process.send_signal(signal.SIGINT)
        self.assertEqual(reader.process.wait(20), -signal.SIGINT)
        until(lambda: self.keys() == {}, "nothing left in etcd", 10)

    def test_4_a_generation_that_is_over_is_read(self):
        out, err = self.logs("--generation", "1")
        self.assertEqual(out.count("rank 1   last words\n"), 1)
        self.assertEqual(err, "")
        self.assertIn("last words\n", self.logs("--generation", "1", "--rank", "1", "-f")[0])

    def test_5_a_reader_that_is_killed_leaves_nothing(self):
        reader = Reader(self, "--rank", "1", "-f")
        until(lambda: len(self.keys()) == 2, "its ask and an answer")
        reader.process.kill()
        until(lambda: self.keys() == {}, "nothing left in etcd", 60)
        if FIGURES:
            self.share(self.cluster.pid(self.node_of(1)), "no reader")

    def test_6_a_daemon_that_stands_still_is_named(self):
        node = self.node_of(1)
        pid = self.cluster.pid(node)
        os.kill(pid, signal.SIGSTOP)
        try:
            out, err = self.logs("--rank", "1", code=1)
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(out, "")
        self.assertIn("sdctl: node %s (127.0.0.1): it does not answer within 5 s; its logs are there in "
                      "/proc/self/cwd/%s-logs/far/g2\n" % (node, node), err)

    def figures(self, times):
        values = self.keys()
        print("line written -> shown: median %.3f s, max %.3f s of %d; load %.1f" % (
            statistics.median(times), max(times), len(times), os.getloadavg()[0]))
        print("in etcd for one reader of 2 nodes: %d keys, %d bytes with their keys" % (
            len(values), sum(len(key) + len(value) for key, value in values.items())))
        pid = self.cluster.pid(self.node_of(1))
        self.assertEqual(len(values), 4)
        self.share(pid, "a reader that waits")

    def share(self, pid, of):
        def used():
            with open("/proc/%d/stat" % pid) as file:
                return sum(int(n) for n in file.read().rsplit(")", 1)[1].split()[11:13])
        before, began = used(), time.monotonic()
        time.sleep(30)
        print("processor of a daemon with %s: %.2f %%" % (
            of, 100 * (used() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
