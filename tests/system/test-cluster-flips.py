#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One bit of one object of a checkpoint or of a dataset is wrong, in a cluster: the job's next world says so and leaves
that checkpoint aside, or the job is refused and names the file, or nothing comes of it. Never other bits.

One job lives through all of them. Each life of its trainers stops itself in the middle of a step; a bit is flipped; then a
trainer is killed, with or without a word that the world gets another size, or the job is stopped and started again; and
the next world restores from what was flipped and opens the dataset. In the end its digest is that of a run of one process
that nothing disturbed.

SDTRAIN_CHAOS_FULL=1 tries 400 places instead of a few."""
import json
import os
import random
import signal
import subprocess
import time
import unittest

from lab import LabCase, TimedOut, process_state, processes_of, until

PLACES = 400 if os.environ.get("SDTRAIN_CHAOS_FULL") == "1" else 12
DATA = ("index.json", "index.sdtrain", "shard.00000.mds", "shard.00001.mds", "empty.npy")
NODES = ("node1", "node2", "node3")
STEPS = 100000  # never reached: it is stopped after the last place


class ClusterFlips(LabCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lab.data("small", 40)

    def make(self, name, steps):
        # keep_every: training waits for the commit of each step, so that each life, which stops itself some steps on, has
        # commits of its own before that, however slow the machine. The newest, which is flipped, is never the only one.
        return self.lab.job(name, data=self.lab.path("small"), train__steps=steps, checkpoint__every_steps=1,
                            checkpoint__keep_last=4, checkpoint__keep_every=1, train__ema={"start_step": 1, "decay": 0.9},
                            world={"min": 1, "max": 3},
                            recovery={"max_failures_at_same_step": 100, "grow_interval_s": 3600})  # steps are few between them

    def setUp(self):
        self.lab.forget_faults()
        # A trainer that has stopped itself is waited for: neither its node nor it is taken for dead.
        self.cluster = self.lab.cluster(nodes=3, patient=NODES)
        self.addCleanup(self.cluster.down)
        self.cluster.configure("controller1", max_strikes=0)  # it is the test that kills
        self.job = self.make("flipped", STEPS)
        self.root = self.job["checkpoint"]["uri"]
        self.rng = random.Random(17)
        self.size = 3
        self.found = {}

    def ctl(self, *arguments):
        return self.cluster.ctl("job", *arguments)

    def record(self, kind):
        done = subprocess.run(["etcdctl", "--endpoints", self.cluster.etcd, "get", "--print-value-only",
                               "/sdtrain/dev/%s/%s" % (kind, self.job["name"])], stdout=subprocess.PIPE, text=True,
                              timeout=60, check=True, env=dict(os.environ, ETCDCTL_API="3"))
        return json.loads(done.stdout)

    # ---- one life after another

    def gate(self):
        """The next life of each node's trainer stops some steps on."""
        self.lab.forget_faults()
        for node in NODES:
            self.cluster.fault(node, *["loop.compute=stop@9"] * 4)  # a life that cannot restore takes one, too

    def stopped(self):
        return [pid for pid, program in processes_of(self.lab.folder)
                if program == "sdtrainer" and process_state(pid) == "T"]

    def next_life(self, generation):
        """Until a trainer of a later generation has stopped itself, or the job is over: its status then."""
        def look():
            status = self.cluster.status(self.job)
            if status["phase"] == "failed":
                return status
            return status["generation"] > generation and status["phase"] == "running" and self.stopped() and status
        return until(look, "the life after generation %d" % generation, pause=0.03)

    def kill(self, flip):
        pid = until(self.stopped, "a trainer that has stopped itself")[0]
        generation = self.cluster.status(self.job)["generation"]
        what = flip()
        self.gate()
        os.kill(pid, signal.SIGKILL)
        return what, self.next_life(generation)

    def resize(self, flip):
        """A world that is to be another size, and dies before it has left."""
        self.size = 5 - self.size
        self.ctl("resize", self.job["name"], "--world", str(self.size))
        return self.kill(flip)

    def stop(self, flip):
        generation = self.cluster.status(self.job)["generation"]
        self.ctl("stop", self.job["name"])
        self.release()
        what = flip()
        self.gate()
        return what, self.begin(generation)

    def end_world(self, turn, flip):
        return (self.kill, self.kill, self.resize, self.stop)[turn % 4](flip)

    def release(self):
        """All that have stopped themselves go on, so that a word to stop is heard."""
        def look():
            for pid in self.stopped():
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    pass
            return self.cluster.status(self.job)["phase"] == "stopped"
        until(look, "the job to be stopped", pause=0.03)

    def begin(self, generation):
        """`job start`, which may be told why not: then the job is where it was."""
        code, text = self.cluster.ctl_code("job", "start", self.job["name"])
        if code != 0:
            return {"phase": "failed", "reason": text, "generation": generation}
        return self.next_life(generation)

    # ---- what is flipped

    @staticmethod
    def flip(path, at, bit):
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << bit]))

    def place(self, path, turn):
        """(byte, bit): the ends first, then anywhere."""
        size = os.path.getsize(path)
        return (0, size - 1)[turn] if turn < 2 else self.rng.randrange(size), self.rng.randrange(8)

    def flip_checkpoint(self, turn):
        """(step, path) of an object of the newest commit, the manifest among them."""
        commits = [c for c in self.record("checkpoints")["commits"] if not c.get("struck_out")]
        self.assertGreater(len(commits), 1, "the life before this one has committed nothing")
        newest = commits[-1]
        manifest = newest["uri"].replace("file://", "", 1)
        with open(manifest) as file:
            names = [each["key"] for each in json.load(file)["objects"]]
        paths = [manifest] + [os.path.join(os.path.dirname(manifest), name) for name in names]
        path = paths[turn % len(paths)]
        self.flip(path, *self.place(path, turn // len(paths)))
        return newest["step"], path

    def one_checkpoint(self, turn):
        (step, path), status = self.end_world(turn, lambda: self.flip_checkpoint(turn))
        self.assertNotEqual(status["phase"], "failed", "%s: %s" % (path, status["reason"]))
        commits = self.record("checkpoints")["commits"]
        struck = [c for c in commits if c["step"] == step and c.get("struck_out")]
        if not struck:
            return "harmless"
        folder = os.path.basename(os.path.dirname(path))
        told = [i for i in status["incidents"] if i["cause"] == "checkpoint-corrupt" and folder in i["evidence"]]
        self.assertTrue(told, "%s is left aside, and nobody says so: %s" % (path, status["incidents"]))
        return "left aside"

    def one_sample(self, turn):
        name = DATA[turn % len(DATA)]
        path = os.path.join(self.lab.path("small"), name)
        at, bit = self.place(path, turn // len(DATA))
        before = self.cluster.status(self.job)["generation"]
        _, status = self.end_world(turn, lambda: self.flip(path, at, bit))
        self.flip(path, at, bit)
        if status["phase"] != "failed":
            return "harmless"
        self.assertTrue(name in status["reason"] or "data.empty_text" in status["reason"],
                        "%s at %d: %s" % (name, at, status["reason"]))
        self.gate()
        status = self.begin(max(before, status["generation"]))
        self.assertEqual(status["phase"], "running", status)
        return "refused"

    def test_places(self):
        self.gate()
        self.cluster.submit(self.job)
        self.next_life(0)
        for i in range(PLACES):
            of, one = (("checkpoint", self.one_checkpoint), ("dataset", self.one_sample))[i % 2]
            began = time.monotonic()
            try:
                outcome = one(i // 2)
            except TimedOut as e:
                raise TimedOut("%s %d: %s\n%s" % (of, i // 2, e, self.cluster.story())) from e
            self.found[of, outcome] = self.found.get((of, outcome), 0) + 1
            if PLACES > 100:
                print("%3d %-10s %-10s %.1f s" % (i, of, outcome, time.monotonic() - began), flush=True)
        self.ctl("stop", self.job["name"])
        self.release()
        step, digest = (self.cluster.status(self.job)["checkpoint"][key] for key in ("step", "digest"))
        reference = self.lab.reference(self.make("reference", step))
        print("flips in a cluster: %d places, %d steps, %d generations: %s" %
              (PLACES, step, self.cluster.status(self.job)["generation"],
               ", ".join("%s %s %d" % (*key, n) for key, n in sorted(self.found.items()))))
        self.assertEqual(digest, reference.digest)
        self.assertGreater(self.found.get(("checkpoint", "left aside"), 0), 0)
        self.assertGreater(self.found.get(("dataset", "refused"), 0), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
