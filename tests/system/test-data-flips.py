#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A byte of a dataset is another one, one at a time: either the job is refused, or it ends with the bits of the run
that nothing disturbed. Each run is of one process.

Before a job's first step nothing vouches for empty.npy but what a cluster's job was submitted with (test-run,
test-loader); afterwards its checkpoints do. SDTRAIN_CHAOS_FULL=1 tries 400 places, a few minutes; else 16.
"""
import os
import random
import shutil
import unittest

from lab import LabCase

FULL = os.environ.get("SDTRAIN_CHAOS_FULL") == "1"
PLACES = 400 if FULL else 16
SAVED = 6  # the step that a second life begins at


class Flips(LabCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lab.data("small", 40)
        cls.settings = {"data": cls.lab.path("small"), "train__steps": 9, "checkpoint__every_steps": 3}
        cls.reference = cls.lab.reference(cls.lab.job("reference", **cls.settings)).digest
        cls.job = cls.lab.job("flipped", **cls.settings)
        code, text = cls.lab.train(cls.job, fault="checkpoint.manifest.after=kill@%d" % (1 + SAVED // 3))
        assert code < 0, text
        shutil.copytree(cls.lab.path("small"), cls.lab.path("small.good"))
        shutil.copytree(cls.job["checkpoint"]["uri"], cls.lab.path("saved"))

    def again(self, begun):
        """Everything as it was; a job that has begun goes on from its checkpoint."""
        for good, place in ((self.lab.path("small.good"), self.lab.path("small")),
                            (self.lab.path("saved"), self.job["checkpoint"]["uri"])):
            shutil.rmtree(place, ignore_errors=True)
            if begun or good.endswith(".good"):
                shutil.copytree(good, place)

    def one(self, name, at, bit, begun):
        self.again(begun)
        path = os.path.join(self.lab.path("small"), name)
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << bit]))
        code, text = self.lab.train(self.job)
        if code == 0:
            self.assertEqual(self.lab.digest(self.job), self.reference, text)
            return "harmless"
        self.assertIn(code, (78, 82), text)  # said, and not for a reason that a retry could help
        return "refused"

    def test_places(self):
        names = ["index.json", "index.sdtrain", "shard.00000.mds", "shard.00001.mds", "empty.npy"]
        self.again(True)
        self.assertEqual(self.lab.train(self.job)[0], 0)
        self.assertEqual(self.lab.digest(self.job), self.reference)
        rng = random.Random(4)
        found = {}
        for i in range(PLACES):
            name = names[i % len(names)]
            size = os.path.getsize(os.path.join(self.lab.path("small.good"), name))
            k, n = i // len(names), -(-PLACES // len(names))
            at = min(size - 1, size * k // n + rng.randrange(max(1, size // n)))
            begun = name == "empty.npy" or k % 2 == 0
            with self.subTest(name=name, at=at, begun=begun):
                outcome = self.one(name, at, rng.randrange(8), begun)
                found[name, outcome] = found.get((name, outcome), 0) + 1
        print("flips:", ", ".join("%s %s %d" % (*key, n) for key, n in sorted(found.items())))
        self.assertEqual(sum(found.values()), PLACES)


if __name__ == "__main__":
    unittest.main(verbosity=2)
