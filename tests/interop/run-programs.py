#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of ops/examples/torch in a cluster of three nodes, disturbed in each way that a cluster can be. Each step of a job's final
history has the samples of an undisturbed run, each once, whatever number of ranks did it, and the same loss but for rounding.

    run-programs.py --bin DIR [--schedules N] [--seed S]     from a Python that has PyTorch, diffusers, mosaicml-streaming and Lightning
"""
import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, "../system"))

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--bin", required=True)
arguments.add_argument("--schedules", type=int, default=20)
arguments.add_argument("--seed", type=int, default=int(time.time()))
chosen, rest = arguments.parse_known_args()
os.environ["SDTRAIN_BIN"] = os.path.abspath(chosen.bin)
os.environ["SDTRAIN_SOURCE"] = ROOT

import dataset  # noqa: E402
from foreign import CLIENT, program_of  # noqa: E402
from lab import Lab, until  # noqa: E402

FAULTY = os.path.join(HERE, "faulty.py")
EXAMPLE = os.path.join(ROOT, "ops/examples/torch")
TRAIN = os.path.join(EXAMPLE, "train.py")
SAMPLES, BATCH, STEPS, EVERY = 96, 6, 40, 5
# mosaicml-streaming takes one /dev/shm for one node, so that each of the three nodes gets its own. A job file writes $ as $$.
OWN_MEMORY = ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$$@"', "sh"]


def steps_of(folder):
    """{step: (generation, samples, loss)} of the final history: what a step's last generation did."""
    steps = {}
    for name in sorted(os.listdir(folder)):
        generation = int(name.split("-")[0][1:])
        with open(os.path.join(folder, name)) as file:
            for line in file:
                if not line.endswith("\n"):
                    continue  # it was killed in mid-line
                row = json.loads(line)
                known = steps.get(row["step"])
                if known is None or known[0] < generation:
                    steps[row["step"]] = (generation, sorted(row["samples"]), row["loss"])
                elif known[0] == generation:
                    steps[row["step"]] = (generation, sorted(known[1] + row["samples"]), row["loss"])
    return steps


class Disturbed(unittest.TestCase):
    """Jobs of a program in a cluster of three nodes. A class has `reference`, the steps of an undisturbed run."""
    names = 0

    @classmethod
    def open(cls):
        cls.lab = Lab(base="/tmp")
        cls.addClassCleanup(cls.lab.close)

    @classmethod
    def run_alone(cls, *command):
        """The program without sdtrain, which writes its steps into <lab>/alone/trace."""
        done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                              env=dict(os.environ, PYTHONPATH=CLIENT + ":" + EXAMPLE))
        assert done.returncode == 0, done.stdout
        cls.reference = steps_of(cls.lab.path("alone/trace"))
        assert sorted(cls.reference) == list(range(1, STEPS + 1))
        assert all(len(samples) == BATCH for _, samples, _ in cls.reference.values())

    @classmethod
    def up(cls):
        cls.cluster = cls.lab.cluster(nodes=3, slots=2, controllers=2, trainers=["TESTLAB=" + cls.lab.folder], up=["--allow-exec"],
                                      bearing="--hang-floor-sec 5 --save-sec 30")  # a stop may hit a save
        cls.addClassCleanup(cls.cluster.down)

    def setUp(self):
        Disturbed.names += 1
        self.name = "t%d" % Disturbed.names
        self.folder = self.lab.path(self.name)
        os.makedirs(self.folder)

    def submit_command(self, command, world=None, failures=5):
        job = {"name": self.name, "kind": "exec", "world": world or {"min": 3, "max": 3},
               "exec": {"command": command, "dir": self.folder, "notify": True, "leave_s": 30,
                        "env": {"PYTHONPATH": CLIENT + ":" + EXAMPLE, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}},
               "checkpoint": {"uri": self.folder + "/checkpoints"},
               "recovery": {"max_failures_at_same_step": failures, "grow_interval_s": 0}}
        self.cluster.submit(job)
        return job

    def reached(self, step, generation=0):
        """Waits until the job has done that step in that generation or a later one."""
        def look():
            steps = steps_of(self.folder + "/trace") if os.path.isdir(self.folder + "/trace") else {}
            return any(n >= step and at[0] >= generation for n, at in steps.items())
        until(look, "step %d of %s\n%s" % (step, self.name, self.cluster.story(80)), timeout=180, pause=0.02)

    def succeeds(self, job):
        self.cluster.wait(job, "succeeded", timeout=300)
        steps = steps_of(self.folder + "/trace")
        self.assertEqual(sorted(steps), list(range(1, STEPS + 1)))
        for step, (_, samples, loss) in steps.items():
            self.assertEqual(samples, self.reference[step][1], "samples of step %d" % step)
            self.assertTrue(math.isclose(loss, self.reference[step][2], rel_tol=1e-3),
                            "loss %r of step %d instead of %r" % (loss, step, self.reference[step][2]))
        return self.cluster.status(job)

    def incidents(self, job):
        return [(incident["cause"], incident["rank"]) for incident in self.cluster.status(job)["incidents"]]

    def goes_through_sizes(self):
        """A leave saves, so that no step is done twice."""
        job = self.submit(world={"min": 1, "max": 3})
        self.reached(7)
        for generation, size in enumerate((1, 2, 3), 2):
            self.cluster.ctl("job", "resize", self.name, "--world", str(size))
            self.reached(1, generation)
        status = self.succeeds(job)
        self.assertEqual((status["generation"], status["incidents"], self.lost()), (4, [], 0))

    def lost(self):
        """Steps that were done twice."""
        done = 0
        for name in os.listdir(self.folder + "/trace"):
            if name.endswith("-r0"):
                with open(os.path.join(self.folder, "trace", name)) as file:
                    done += len(file.readlines())
        return done - STEPS


class Programs(Disturbed):
    @classmethod
    def setUpClass(cls):
        cls.open()
        dataset.write(cls.lab.path("data"), SAMPLES, 1, latents=(4, 8, 8), text=(77, 64))
        cls.run_alone(*cls.command(cls.lab.path("alone")))
        cls.up()

    @classmethod
    def command(cls, folder, *options):
        os.makedirs(folder, exist_ok=True)
        return [TRAIN, "--data", cls.lab.path("data"), "--unet", os.path.join(ROOT, "ops/examples/unet.json"), "--checkpoints",
                folder + "/checkpoints", "--steps", str(STEPS), "--every", str(EVERY), "--global-batch", str(BATCH), "--warmup-steps", "4",
                "--canonical-nodes", "6", "--trace", folder + "/trace", *options]

    def submit(self, *options, own_memory=True, **more):
        return self.submit_command([*(OWN_MEMORY if own_memory else ()), sys.executable, FAULTY, *self.command(self.folder, *options)],
                                   **more)

    def test_killed_ranks(self):
        job = self.submit()
        for generation, rank in enumerate((0, 1, 2), 1):
            self.reached(8 * generation, generation)
            os.kill(program_of(self.lab, self.name, rank), signal.SIGKILL)
            self.reached(1, generation + 1)
        self.succeeds(job)
        self.assertEqual(sorted(self.incidents(job)), [("trainer-died", rank) for rank in range(3)])

    def test_sharded(self):
        """The model is sharded, and a checkpoint of three ranks goes on with two."""
        job = self.submit("--sharded", world={"min": 2, "max": 3})
        self.reached(8)
        os.kill(program_of(self.lab, self.name, 1), signal.SIGKILL)
        self.reached(14, 2)
        self.cluster.ctl("job", "resize", self.name, "--world", "2")
        self.succeeds(job)
        self.assertEqual(self.incidents(job), [("trainer-died", 1)])

    def test_ranks_of_one_node(self):
        """They share memory, which a killed generation leaves behind."""
        job = self.submit(world={"min": 2, "max": 2, "per_node": 2}, own_memory=False)
        for generation in 1, 2:
            self.reached(8 * generation, generation)
            os.kill(program_of(self.lab, self.name, 1), signal.SIGKILL)
            self.reached(1, generation + 1)
        self.succeeds(job)

    def test_stopped(self):
        job = self.submit()
        self.reached(12)
        os.kill(program_of(self.lab, self.name, 1), signal.SIGSTOP)
        self.reached(13, 2)
        self.succeeds(job)
        self.assertEqual(self.incidents(job), [("hang", 1)])

    def test_out_of_memory(self):
        job = self.submit()
        self.reached(8)
        with open(self.folder + "/memory-2", "w"):
            pass
        self.reached(9, 2)
        (incident,) = self.succeeds(job)["incidents"]
        self.assertEqual((incident["cause"], incident["rank"]), ("retry", 2))
        self.assertIn("can't allocate memory", incident["evidence"])

    def test_dead_node(self):
        job = self.submit(world={"min": 2, "max": 3})
        self.reached(12)
        node = self.cluster.status(job)["world"]["ranks"][0]["node"]  # of rank 0
        self.cluster.kill(node)
        self.reached(13, 2)
        self.cluster.start(node)
        status = self.succeeds(job)
        self.assertGreaterEqual(status["generation"], 2)
        until(lambda: self.cluster.incarnation(node), node)

    def test_other_sizes(self):
        self.goes_through_sizes()

    def test_drained_node(self):
        job = self.submit(world={"min": 2, "max": 3})
        self.reached(7)
        node = self.cluster.status(job)["world"]["ranks"][1]["node"]
        self.cluster.ctl("node", "drain", node)
        self.reached(8, 2)
        self.cluster.ctl("node", "uncordon", node)
        status = self.succeeds(job)
        self.assertEqual(status["incidents"], [])
        self.assertEqual(self.lost(), 0)

    def test_control_plane(self):
        """The leader dies, and then etcd: the world goes on."""
        job = self.submit()
        self.reached(5)
        leader = json.loads(self.cluster.ctl("cluster", "status", "-o", "json"))["leader"]
        self.cluster.kill(leader)
        self.reached(9)
        self.cluster.start(leader)
        etcd = self.cluster.pid("etcd")
        os.kill(etcd, signal.SIGSTOP)
        try:
            self.reached(13)
        finally:
            os.kill(etcd, signal.SIGCONT)
        status = self.succeeds(job)
        self.assertEqual(status["generation"], 1)

    def test_schedules(self):
        for number in range(chosen.schedules):
            if number:
                self.setUp()
            seed = chosen.seed + number
            with self.subTest(seed=seed):
                self.schedule(random.Random(seed))

    def schedule(self, rng):
        """Up to four disturbances, each when the job has done a few more steps."""
        job = self.submit(*(["--sharded"] if rng.random() < 0.3 else []), world={"min": 1, "max": 3}, failures=9)
        back = []
        try:
            self.disturb(job, rng, back)
        finally:  # the next schedule has all nodes, too
            for what, node in back:
                self.cluster.start(node) if what == "node" else self.cluster.ctl("node", "uncordon", node)
        self.succeeds(job)
        for _, node in back:
            until(lambda: self.cluster.incarnation(node), node)

    def disturb(self, job, rng, back):
        step = 0
        for _ in range(rng.randint(1, 4)):
            step += rng.randint(2, 8)
            self.reached(step)
            ranks = self.cluster.status(job)["world"]["ranks"]
            what = rng.choice(("kill", "kill", "stop", "node", "resize", "drain"))
            rank = rng.randrange(len(ranks))
            if what in ("kill", "stop"):
                self.signal(rank, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
            elif what == "resize":
                self.cluster.ctl("job", "resize", self.name, "--world", str(rng.randint(1, 3)))
            elif not back:  # one node at a time
                node = ranks[rank]["node"]
                back.append((what, node))
                self.cluster.kill(node) if what == "node" else self.cluster.ctl("node", "drain", node)

    def signal(self, rank, number):
        """To the program of that rank, if the world has it at the moment."""
        try:
            os.kill(program_of(self.lab, self.name, rank), number)
        except ProcessLookupError:
            pass


class Lightning(Disturbed):
    """ops/examples/torch/sdtrain_lightning.py"""

    @classmethod
    def setUpClass(cls):
        cls.open()
        cls.run_alone(*cls.command(cls.lab.path("alone")))
        cls.up()

    @classmethod
    def command(cls, folder):
        return [os.path.join(HERE, "lightning_program.py"), folder, str(STEPS), str(EVERY), str(BATCH)]

    def submit(self, **more):
        return self.submit_command([sys.executable, *self.command(self.folder)], **more)

    def weights(self, folder):
        with open(folder + "/weights") as file:
            return [number for one in json.load(file) for number in one]

    def succeeds(self, job):
        status = super().succeeds(job)
        for found, wanted in zip(self.weights(self.folder), self.weights(self.lab.path("alone")), strict=True):
            self.assertTrue(math.isclose(found, wanted, rel_tol=1e-9), (found, wanted))
        self.assertEqual([name[:13] for name in sorted(os.listdir(self.folder + "/checkpoints"))][-1], "step-%08d" % STEPS)
        return status

    def test_killed_ranks(self):
        job = self.submit()
        for generation, rank in enumerate((0, 2), 1):
            self.reached(12 * generation, generation)
            os.kill(program_of(self.lab, self.name, rank), signal.SIGKILL)
            self.reached(1, generation + 1)
        self.succeeds(job)
        self.assertEqual(sorted(self.incidents(job)), [("trainer-died", rank) for rank in (0, 2)])

    def test_other_sizes(self):
        self.goes_through_sizes()

    def test_save_that_is_asked_for(self):
        job = self.submit()
        self.reached(6)
        self.cluster.ctl("job", "checkpoint", self.name)
        until(lambda: (self.cluster.status(job)["checkpoint"] or {}).get("step", 0) % EVERY, "a checkpoint between two others")
        self.succeeds(job)

    def test_ranks_of_one_node(self):
        job = self.submit(world={"min": 2, "max": 2, "per_node": 2})
        self.reached(12)
        os.kill(program_of(self.lab, self.name, 1), signal.SIGKILL)
        self.succeeds(job)
        self.assertEqual(self.incidents(job), [("trainer-died", 1)])


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("run-programs.py: run it as root: each node gets a /dev/shm of its own")
    print("schedules from seed %d" % chosen.seed, flush=True)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
