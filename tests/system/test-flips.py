#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One bit of one object of a checkpoint is wrong: `sdtrainer run` says so, or goes on to the same bits. Never to others.

SDTRAIN_CHAOS_FULL=1 tries 240 places instead of a few."""
import os
import random
import shutil
import unittest

import dataset
from lab import BIN, LabCase

JOB = dict(train__steps=4, checkpoint__every_steps=2, checkpoint__keep_last=2, train__ema={"start_step": 1, "decay": 0.9})
SHADOW = os.path.abspath(os.path.join(BIN, "libsdtrain-shadow.so"))
PLACES = 240 if os.environ.get("SDTRAIN_CHAOS_FULL") else 14


class Flips(LabCase):
    latents = dataset.SMALL

    def objects(self, job):
        """Of the newest checkpoint and of the metrics, as paths below the job's folder; the manifest's first."""
        root = job["checkpoint"]["uri"]
        path, manifest = self.lab.manifests(job)[-1]
        folder = os.path.relpath(os.path.dirname(path), root)
        found = [os.path.join(folder, "manifest.json")]
        found += [os.path.join(folder, each["key"]) for each in manifest["objects"]]
        found += [os.path.join(folder, manifest["plans"]["key"])] if "plans" in manifest else []
        return found + [each["key"] for each in manifest["metrics"]] + ["metrics.jsonl"]

    def places(self, root, objects):
        """[(object, byte, bit)]: ends first, then at random, the same number for each object."""
        rng, found = random.Random(11), []
        for turn in range(1 + PLACES // len(objects)):
            for name in objects:
                size = os.path.getsize(os.path.join(root, name))
                at = (0, size - 1)[turn] if turn < 2 else rng.randrange(size)
                found.append((name, at, rng.randrange(8)))
        return found[:PLACES] if len(found) > PLACES >= len(objects) else rng.sample(found, min(PLACES, len(found)))

    def flip(self, path, at, bit):
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << bit]))

    @unittest.skipUnless(os.path.exists(SHADOW), "the shadow module was not built")
    def test_one_bit_of_the_plans(self):
        """On a device that chooses its algorithms, the network is planned by an object of the checkpoint."""
        self.addCleanup(setattr, self.lab, "environment", dict(self.lab.environment))
        self.lab.environment.update(SDTRAIN_CUDA_MODULE=SHADOW, SDTRAIN_SHADOW="plans=a/b")
        reference = self.lab.reference(self.lab.job("plans-reference", **dict(JOB, train__steps=6, train__device="cuda")))
        job = self.lab.job("plans-flipped", **dict(JOB, train__device="cuda"))
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        root, good = job["checkpoint"]["uri"], self.lab.path("plans-good")
        shutil.copytree(root, good)
        job["train"]["steps"] = 6
        self.lab.environment.update(SDTRAIN_SHADOW="plans=b/a")
        name, = [each for each in self.objects(job) if each.endswith("/plans.json")]
        for at in range(os.path.getsize(os.path.join(good, name))):
            shutil.rmtree(root)
            shutil.copytree(good, root)
            self.flip(os.path.join(root, name), at, at % 8)
            code, text = self.lab.train(job)
            self.assertEqual(code, 0, text)
            self.assertIn("plans.json", text)
            self.assertEqual(self.lab.digest(job), reference.digest)

    def test_one_bit(self):
        reference = self.lab.reference(self.lab.job("reference", **dict(JOB, train__steps=6)))
        job = self.lab.job("flipped", **JOB)
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        root, good = job["checkpoint"]["uri"], self.lab.path("good")
        shutil.copytree(root, good)
        job["train"]["steps"] = 6
        objects, counts = self.objects(job), {"refused": 0, "told": 0, "harmless": 0, "other bits": 0}
        for name, at, bit in self.places(good, objects):
            shutil.rmtree(root)
            shutil.copytree(good, root)
            self.flip(os.path.join(root, name), at, bit)
            code, text = self.lab.train(job)
            told = os.path.basename(name) in text or os.path.dirname(name).split("/")[0] in text
            if code != 0:
                self.assertTrue(told, "%s at %d: exit %d says nothing of it:\n%s" % (name, at, code, text))
                outcome = "refused"
            elif self.lab.digest(job) != reference.digest:
                outcome = "other bits"
            else:
                outcome = "told" if told else "harmless"
            counts[outcome] += 1
            self.assertNotEqual(outcome, "other bits", "%s, byte %d, bit %d:\n%s" % (name, at, bit, text))
        print("flips: %d places of %d objects: %s" % (sum(counts.values()), len(objects), counts))
        self.assertEqual(sum(counts.values()), PLACES)


if __name__ == "__main__":
    unittest.main(verbosity=2)
