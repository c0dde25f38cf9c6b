#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TensorBoard's own reader on what `sdctl job metrics -o tensorboard` writes of a job in a cluster: every step, every tag,
the values of `-o jsonl`, and the same wall times."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../system"))

from lab import LabCase
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader


class Events(LabCase):
    def test_accumulator_reads_every_step(self):
        cluster = self.lab.cluster(nodes=1)
        self.addCleanup(cluster.down)
        job = self.lab.job("board")
        cluster.submit(job)
        cluster.wait(job, "succeeded")
        rows = [json.loads(line) for line in cluster.ctl("job", "metrics", "board").splitlines()]
        folder = self.lab.path("board")
        cluster.ctl("job", "metrics", "board", "-o", "tensorboard", "--out", folder)
        (name,) = os.listdir(folder)
        self.assertEqual(len(list(EventFileLoader(os.path.join(folder, name)).Load())), 1 + len(rows))
        read = EventAccumulator(folder, size_guidance={"scalars": 0})
        read.Reload()
        self.assertEqual(sorted(read.Tags()["scalars"]), ["grad_norm", "learning_rate", "loss", "samples_per_s"])
        for tag in read.Tags()["scalars"]:
            scalars = read.Scalars(tag)
            self.assertEqual([s.step for s in scalars], [row["step"] for row in rows])
            for scalar, row in zip(scalars, rows):
                self.assertAlmostEqual(scalar.value, row[tag], delta=1e-6 * abs(row[tag]))
                self.assertAlmostEqual(scalar.wall_time, row["wall_time"], delta=0.001)


if __name__ == "__main__":
    unittest.main(verbosity=2)
