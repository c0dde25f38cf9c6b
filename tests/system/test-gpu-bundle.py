#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ops/gpu carries to a machine with a GPU starts there from a folder of its own, and its stages tell right from wrong: tried
with the emulator of the kernels in the GPU's place."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ["SDTRAIN_SOURCE"]
MEBIBYTE = 2**20


class Bundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "gpu")
        subprocess.run([os.path.join(SOURCE, "ops/gpu"), "bundle", "--no-build", "--out", self.folder], check=True, timeout=120)

    def stages(self, *arguments):
        """The exit code, and how each stage went."""
        results = os.path.join(self.folder, "results")
        done = subprocess.run([os.path.join(self.folder, "ops/gpu"), "run", *arguments], check=False, timeout=300, cwd="/",
                              capture_output=True, text=True)
        with open(os.path.join(results, "result.json"), encoding="utf-8") as file:
            return done.returncode, json.load(file)

    def test_a_bundle_runs_by_itself(self):
        size = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(self.folder) for name in names)
        self.assertLess(size, 50 * MEBIBYTE)
        code, stages = self.stages("--emulated", "--stages", "machine,lanes,bits")
        self.assertEqual(code, 0)
        self.assertEqual([stages[name] for name in ("machine", "lanes", "bits", "runs")], ["passed"] * 3 + ["not run"])

        # Another bit in the golden file is a kernel that computes otherwise.
        golden = os.path.join(self.folder, "tests/golden/kernels-cuda.txt")
        with open(golden, encoding="utf-8") as file:
            text = file.read()
        at = text.index("\nsilu forward ") + len("\nsilu forward ")
        with open(golden, "w", encoding="utf-8") as file:
            file.write(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1:])
        code, stages = self.stages("--emulated", "--stages", "machine,bits")
        self.assertEqual((code, stages["bits"]), (1, "failed"))
        with open(os.path.join(self.folder, "results/bits.json"), encoding="utf-8") as file:
            self.assertIn("silu forward", json.load(file)["differ"]["f32"][0])

    def test_what_is_no_bundle_is_not_deleted(self):
        other = os.path.join(os.path.dirname(self.folder), "thesis")
        os.makedirs(other)
        kept = os.path.join(other, "chapter")
        with open(kept, "w", encoding="utf-8") as file:
            file.write("years of work")
        for name in ("chapter", "ops/gpu", "CMakeLists.txt"):  # the last two: as a source tree has them
            path = os.path.join(other, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "a", encoding="utf-8"):
                pass
            if name == "ops/gpu":
                continue
            done = subprocess.run([os.path.join(SOURCE, "ops/gpu"), "bundle", "--no-build", "--out", other], check=False, timeout=60,
                                  capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(other, done.stderr)
            self.assertTrue(os.path.exists(kept))

    def test_without_a_gpu_nothing_is_run(self):
        if shutil.which("nvidia-smi"):
            self.skipTest("there is a GPU's driver")
        code, stages = self.stages()
        self.assertEqual(code, 2)
        self.assertEqual(stages["machine"], "failed")
        self.assertEqual(stages["bits"], "not run")


if __name__ == "__main__":
    unittest.main(verbosity=2)
