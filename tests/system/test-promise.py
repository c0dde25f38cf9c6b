#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The promise without failures: the same bits for every world size, ZeRO stage, checkpoint and recovery
setting, and for every kind of training that a job file can ask for."""
import os
import unittest

import dataset
from lab import LabCase

# What may never change a bit, all of it varied at once in different ways.
SETTINGS = [
    dict(size=1, train__zero_stage=2, checkpoint__every_steps=7, checkpoint__keep_last=2),
    dict(size=2, train__zero_stage=0, checkpoint__every_steps=1, checkpoint__keep_every=9),
    dict(size=2, train__zero_stage=1, checkpoint__every_steps=40, data__read_ahead=3, data__read_ahead_bytes=1 << 20,
         data__cache_bytes=1 << 20),
    dict(size=3, train__zero_stage=2, checkpoint__every_steps=1, checkpoint__keep_last=5,
         checkpoint__local_dir="/tmp/sdtrain-test-promise-%d" % os.getpid()),
    dict(size=3, train__zero_stage=0, checkpoint__every_steps=7, checkpoint__keep_every=5, checkpoint__blocking=True),
    dict(size=4, train__zero_stage=1, checkpoint__every_steps=7,
         recovery={"max_failures_at_same_step": 9, "grow_interval_s": 0}),
    dict(size=4, train__zero_stage=2, checkpoint__every_steps=40, checkpoint__keep_every=1),
]


class Promise(LabCase):
    latents = dataset.SMALL

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = cls.lab.cluster(nodes=2, slots=2)

    def in_worlds(self, reference, cases, **job):
        for i, case in enumerate(cases):
            settings = dict(case)
            size = settings.pop("size")
            name = "%s-%d" % (reference.name, i)
            job_file = self.lab.job(name, world={"min": size, "max": size}, **dict(job, **settings))
            with self.subTest(**case):
                self.cluster.submit(job_file)
                outcome = self.cluster.finish(job_file)
                self.assertEqual(self.cluster.status(job_file)["world"]["size"], size)
                self.check_same(outcome, reference, str(case))

    def test_what_may_not_change_a_bit(self):
        reference = self.lab.reference(self.lab.job("plain"))
        self.assertEqual(len(set(line["loss_hex"] for line in reference.metrics)), 40)
        self.in_worlds(reference, SETTINGS)

    def test_streams_that_wrap(self):
        """A small stream ends its pass several times, in the middle of a batch too."""
        small = self.lab.data("small", 11, seed=2)
        streams = [{"uri": self.lab.path("data"), "proportion": 0.63}, {"uri": small, "proportion": 0.25},
                   {"uri": self.lab.data("other", 30, seed=3), "proportion": 0.12}]
        job = dict(data__streams=streams, data__shuffle_window=7, train__seed=5, train__caption_drop=0.5)
        reference = self.lab.reference(self.lab.job("streams", **job))
        self.in_worlds(reference, [dict(size=3, checkpoint__every_steps=3)], **job)

    def test_kinds_of_training(self):
        job = dict(train__prediction="v_prediction", train__reduction="exact64", train__steps=30,
                   train__ema={"decay": 0.9, "start_step": 17}, train__optimizer__clip_norm=0.05,
                   train__optimizer__weight_decay=0.1, train__grain=2, train__global_batch=6)
        reference = self.lab.reference(self.lab.job("kinds", world={"min": 1, "max": 3}, **job))
        self.in_worlds(reference, [dict(size=2, train__zero_stage=2), dict(size=3, train__zero_stage=1)], **job)

    def test_without_ema(self):
        job = dict(train__ema={}, train__steps=12)
        reference = self.lab.reference(self.lab.job("bare", **job))
        self.in_worlds(reference, [dict(size=4, train__zero_stage=1, checkpoint__every_steps=2)], **job)

    def test_other_jobs_differ(self):
        """The comparison can fail: a seed, a window and a rate that differ end in other bits."""
        digests = [self.lab.reference(self.lab.job("other-%d" % i, train__steps=4, **change)).digest
                   for i, change in enumerate([{}, {"train__seed": 18}, {"data__shuffle_window": 5},
                                               {"train__optimizer__lr": 0.0011},
                                               {"train__caption_drop": 0.9}])]
        self.assertEqual(len(set(digests)), len(digests))


if __name__ == "__main__":
    unittest.main(verbosity=2)
