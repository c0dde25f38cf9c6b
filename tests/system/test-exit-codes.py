#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""With which code a trainer ends when an operation fails: each fault point of a start, a step and a save, each errno, at
its first visits, in a fresh job and in one that goes on from a checkpoint. The leader decides by that code who is to blame,
so none may change unseen: tests/golden/exit-codes.txt has them (SDTRAIN_EXIT_CODES=write makes it)."""
import concurrent.futures
import difflib
import os
import shutil
import unittest

import dataset
from lab import SOURCE, LabCase

GOLDEN = os.path.join(SOURCE, "tests/golden/exit-codes.txt")
POINTS = ["canned.compute", "loop.compute", "loop.nan", "data.open", "data.read", "saver.saved", "checkpoint.memory", "checkpoint.copied",
          "checkpoint.object", "checkpoint.local", "checkpoint.gathered", "checkpoint.manifest.before", "checkpoint.manifest.after",
          "checkpoint.settle", "checkpoint.retire.manifest", "checkpoint.retire.object", "store.put.before", "store.put.half", "store.put.after"]
ERRORS = ["eio", "enospc", "enomem", "eagain"]
VISITS = [1, 2]
# Every save is waited for, so that each visit is of the same operation in every run.
JOB = dict(train__steps=6, checkpoint__every_steps=2, checkpoint__keep_every=2, checkpoint__keep_last=2)


class ExitCodes(LabCase):
    latents = dataset.SMALL

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        half = cls.lab.job("half", **dict(JOB, train__steps=4))
        assert cls.lab.train(half)[0] == 0
        cls.half = half["checkpoint"]["uri"]

    def code_of(self, begin, point, error, visit):
        name = f"{begin}-{point.replace('.', '-')}-{error}-{visit}"
        job = self.lab.job(name, checkpoint__local_dir=self.lab.path(f"local-{name}"), **JOB)
        if begin == "resumed":
            shutil.copytree(self.half, job["checkpoint"]["uri"], dirs_exist_ok=True)
        code, _ = self.lab.train(job, fault=f"{point}={error}@{visit}")
        shutil.rmtree(job["checkpoint"]["uri"], ignore_errors=True)
        return f"{begin:8}{point:28}{error:8}{visit:<4}{code}"

    def test_each_failure_has_its_code(self):
        tries = [(begin, point, error, visit) for begin in ("fresh", "resumed") for point in POINTS for error in ERRORS for visit in VISITS]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda one: self.code_of(*one), tries))
        if os.environ.get("SDTRAIN_EXIT_CODES") == "write":
            with open(GOLDEN, "w") as file:
                file.write("\n".join(found) + "\n")
        with open(GOLDEN) as file:
            wanted = file.read().splitlines()
        changed = [line for line in difflib.unified_diff(wanted, found, "before", "now", lineterm="", n=0)]
        self.assertEqual(changed, [], "\n".join(changed))


if __name__ == "__main__":
    unittest.main()
