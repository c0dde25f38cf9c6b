#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sdtrainer order`: each pass trains each sample exactly once, and the world's size changes only who does it."""
import os
import unittest

from lab import BIN, LabCase


class OrderVerb(LabCase):
    def test_each_sample_once_a_pass(self):
        """96 and 11 samples, three to one: 64 steps of 4 are two passes of the large one, nearly six of the small."""
        small = self.lab.data("small", 11, seed=2)
        job = self.lab.job("order", data__streams=[{"uri": self.lab.path("data"), "proportion": 3},
                                                   {"uri": small, "proportion": 1}])
        seen, positions = {}, []
        for step in range(1, 65):
            alone = self.lab.order(job, step)
            positions += [int(row["position"]) for row in alone]
            self.assertEqual({row["rank"] for row in alone}, {"0"})
            for row in alone:
                seen.setdefault((int(row["stream"]), int(row["pass"])), []).append(int(row["sample"]))
            for world in (2, 3, 4) if step % 8 == 1 else ():
                ranks = self.lab.order(job, step, world)
                numbers = [int(row.pop("rank")) for row in ranks]
                self.assertEqual(sorted(set(numbers)), list(range(world)))
                self.assertEqual(numbers, sorted(numbers))
                self.assertEqual(ranks, [{k: v for k, v in row.items() if k != "rank"} for row in alone])
        self.assertEqual(positions, list(range(256)))

        for (stream, number), samples in seen.items():
            what = "stream %d pass %d" % (stream, number)
            last = number == max(p for s, p in seen if s == stream)
            self.assertEqual(len(samples), len(set(samples)), what)
            if not last:
                self.assertEqual(sorted(samples), list(range((96, 11)[stream])), what)
        self.assertEqual(sum(len(samples) for (stream, _), samples in seen.items() if stream == 1), 64)
        self.assertNotEqual(seen[1, 0], seen[1, 1], "two passes in the same order")

    def test_usage(self):
        job = self.lab.job_file(self.lab.job("usage"))
        for arguments, code in ((["--job", job], 2), (["--job", job, "--step", "0"], 2),
                                (["--job", job, "--step", "x"], 2), (["--job", job, "--step", "1", "--world", "5"], 78),
                                (["--job", job + ".none", "--step", "1"], 78)):
            got, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "order", *arguments)
            self.assertEqual(got, code, "%s: %s" % (arguments, text))


if __name__ == "__main__":
    unittest.main(verbosity=2)
