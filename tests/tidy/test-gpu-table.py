#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's table of GPU figures is that of the committed results, and what makes it tells figures, failures and old commits apart."""
import json
import os
import subprocess
import tempfile
import unittest

SOURCE = os.environ["SDTRAIN_SOURCE"]
PAGE = "before\n<!-- made by ops/gpu_table.py -->\n\n<!-- end -->\nafter\n"


class Table(unittest.TestCase):
    def make(self, *arguments):
        return subprocess.run([os.path.join(SOURCE, "ops/gpu_table.py"), *arguments], check=False, timeout=30, capture_output=True, text=True)

    def test_the_page_and_the_results_agree(self):
        done = self.make("--check")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            gpu, page = os.path.join(folder, "results/NVIDIA-H200"), os.path.join(folder, "page.md")
            os.makedirs(gpu)
            ours = ("--results", os.path.join(folder, "results"), "--readme", page)

            def write(name, **what):
                with open(os.path.join(gpu, name + ".json"), "w", encoding="utf-8") as file:
                    json.dump(what, file)

            def lines():
                with open(page, encoding="utf-8") as file:
                    return file.read().splitlines()

            with open(page, "w", encoding="utf-8") as file:
                file.write(PAGE)
            self.assertEqual(self.make(*ours).returncode, 0)
            told = lines()
            self.assertEqual((told[0], told[-1]), ("before", "after"))
            self.assertEqual(sum("| never run | |" in line for line in told), 12)
            self.assertIn("| no GPU yet | wanted | predicted, H100 | measured | commit |", told)

            write("result")
            write("profile-512", passed=True, samples_per_second={"1": 123.45, "8": 130}, commit="new", ended=2)
            write("bench-512", passed=True, samples_per_second=123.45, memory_mib=50000, commit="new", ended=2,
                  first={"start_seconds": 12.0, "start": {"first save": 2.5, "step": 1.0}})
            write("peer-shapes-512", passed=True, commit="old", ended=1, ratio=1.034)
            write("bits", passed=False, commit="new", ended=2, differ={"f32": [], "bf16": ["a | b", "c | d"]})
            write("exactness", passed=True, commit="new", ended=2, cases=[{"kind": kind, "digest": "aa"} for kind in ("own", "own", "plans")])
            write("peer-eager-512", passed=None, note="skipped: no torch", commit="new", ended=2)
            write("job-512", passed=False, digests_equal=False, commit="new", ended=2)
            write("profile-256", passed=False, text="it hung", commit="new", ended=2)
            self.assertEqual(self.make("--check", *ours).returncode, 1)
            self.assertEqual(self.make(*ours).returncode, 0)
            told = lines()
            for line in ("| NVIDIA H200 | wanted | predicted, H100 | measured | commit |",
                         "| sd2-base at 512², one grain of 32 a step | 110 samples/s | 130 | 123.5 samples/s | new |",
                         "| sd2-base at 512², 8 grains of 32 a step | | 140 | 130.0 samples/s | new |",
                         "| memory of a job at 512², grain 32 | 60 GB | | 52.4 GB | new |",
                         "| libraries' time of torch's, 512² | 1.05 | | 1.03 | old (older) |",
                         "| speed of PyTorch's eager, 512² | 1.5 | 2.2 to 3.7 | never run | |",
                         "| process start to first step | 15 s | | 9.5 s | new |",
                         "| own kernels' bits beside the emulator's | equal | equal | 2 differ, failed | new |",
                         "| a small job in other worlds, killed, restored | 1 digest a kind | | 3 cases, 2 of 2 digests | new |",
                         "| sd2-base at 256², one grain of 128 a step | 480 samples/s | 596 | failed | new |",
                         "| two runs of a job at 512², digests | equal | equal | differ, failed | new |"):
                self.assertIn(line, told)
            self.assertEqual(self.make("--check", *ours).returncode, 0)
            with open(page, "w", encoding="utf-8") as file:
                file.write("no place\n")
            self.assertEqual(self.make("--check", *ours).returncode, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
