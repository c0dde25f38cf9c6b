#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recorder of histories, on a real etcd: a restart and a pause lose nothing; what is lost is said."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["SDTRAIN_SOURCE"], "tests/system"))
import history  # noqa: E402

HEALTH = '{"v":2,"node":"%s","verdict":"healthy","at_usec":1,"probes":[]}'


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(condition, what):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Recording(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.client, self.peer = free_port(), free_port()
        self.etcd = None
        self.addCleanup(self.kill)
        self.start()

    def start(self, *more):
        client, peer = ("http://127.0.0.1:%d" % port for port in (self.client, self.peer))
        self.etcd = subprocess.Popen(
            ["etcd", "--name=m", "--data-dir=" + self.path("data"), "--listen-client-urls=" + client,
             "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
             "--initial-cluster=m=" + peer, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: self.ctl("endpoint", "health").returncode == 0, "etcd answers")

    def kill(self):
        if self.etcd and self.etcd.poll() is None:
            self.etcd.send_signal(signal.SIGCONT)
            self.etcd.kill()
            self.etcd.wait()

    def path(self, name):
        return os.path.join(self.folder, name)

    def ctl(self, *command):
        return subprocess.run(["etcdctl", "--endpoints", "127.0.0.1:%d" % self.client, *command], check=False, timeout=60,
                              env=dict(os.environ, ETCDCTL_API="3"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def put(self, name, times=1):
        for _ in range(times):
            done = self.ctl("put", "/sdtrain/c/health/" + name, HEALTH % name)
            self.assertEqual(done.returncode, 0, done.stdout)

    def recorder(self):
        recorder = history.Recorder(self.path("history"), "c", "127.0.0.1:%d" % self.client)
        self.addCleanup(recorder.stop)
        return recorder

    def seen(self, recorder, revision):
        until(lambda: recorder._seen() >= revision, "revision %d is recorded" % revision)

    def test_restart_and_death_of_the_watch(self):
        self.put("n1", 2)
        recorder = self.recorder()
        self.put("n2")
        self.seen(recorder, 4)
        self.kill()
        self.start()
        self.put("n2", 2)
        self.seen(recorder, 6)
        recorder.watch.kill()
        self.ctl("del", "/sdtrain/c/health/n1")
        self.put("n1")
        told = history.judge(recorder, "test-recorder")
        self.assertIn(" 7 changes", told)
        self.assertNotIn("nothing says", told)

    def test_keys_of_others(self):
        recorder = self.recorder()
        self.ctl("put", "/sdtrain-secrets/c/a", "secret")
        self.ctl("put", "/sdtrain/c0/health/n1", "another cluster's")
        self.ctl("put", "/sdtrain/b/health/n1", "another cluster's")
        self.put("n1")
        self.assertIn("1 changes", history.judge(recorder, "test-recorder"))
        with open(recorder.path, encoding="utf-8") as file:
            events = [event for line in file for event in json.loads(line).get("Events") or ()]
        self.assertEqual(len(events), 2, "the record and the marker")

    def test_what_is_no_record(self):
        recorder = self.recorder()
        self.put("n1")
        self.ctl("put", "/sdtrain/c/worlds/a", "{}")
        with self.assertRaisesRegex(AssertionError, r"revision 3: /sdtrain/c/worlds/a: record: "):
            history.judge(recorder, "test-recorder")
        os.remove(os.path.join(history.KEPT, "test-recorder.jsonl"))

    def test_compaction(self):
        self.put("n1", 3)
        self.ctl("compact", "3")
        recorder = self.recorder()
        with self.assertRaisesRegex(history.NotWhole, "compacted"):
            history.judge(recorder, "test-recorder")
        os.remove(os.path.join(history.KEPT, "test-recorder.jsonl"))

    def test_restore(self):
        """As an operator does it: to the snapshot's revisions, which are written anew."""
        self.put("n1", 2)
        self.ctl("snapshot", "save", self.path("snapshot"))
        recorder = self.recorder()
        self.put("n1", 2)
        self.seen(recorder, 5)
        self.kill()
        shutil.rmtree(self.path("data"))
        peer = "http://127.0.0.1:%d" % self.peer
        done = self.ctl("snapshot", "restore", self.path("snapshot"), "--data-dir", self.path("data"), "--name", "m",
                        "--initial-cluster", "m=" + peer, "--initial-advertise-peer-urls", peer)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.start()
        self.put("n1")
        self.put("n2", 4)
        with self.assertRaisesRegex(AssertionError, "hole|another cluster id"):
            history.judge(recorder, "test-recorder", timeout=20)
        os.remove(os.path.join(history.KEPT, "test-recorder.jsonl"))

    def test_etcd_that_is_away(self):
        recorder = self.recorder()
        self.put("n1")
        self.seen(recorder, 2)
        self.kill()
        self.assertEqual(recorder.finish(timeout=1), "etcd does not answer")
        code, text = history.check(recorder.path)
        self.assertEqual(code, 3, text)
        self.assertIn("the recorder gave up: etcd does not answer", text)


unittest.main(verbosity=2)
