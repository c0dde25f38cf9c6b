#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sdtrainer plan` against ranks that ran: what it says is never less than what they had resident, and not much more."""
import json
import os
import re
import unittest

from lab import BIN, UNET, LabCase

MORE = 1.15  # planned, at most, of what a rank had resident
NETWORK = dict(UNET, block_out_channels=[64, 128, 256], attention_head_dim=[2, 4, 8],
               down_block_types=["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
               up_block_types=["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"], layers_per_block=2,
               norm_num_groups=32)
ALONE = [dict(train__ema={}), dict(checkpoint__blocking=True), dict(train__grain=4, train__reduction="exact64"),
         dict(train__ema={}, checkpoint__blocking=True, train__zero_stage=2)]
WORLDS = [dict(size=2, train__ema={}), dict(size=2, train__ema={}, checkpoint__blocking=True, train__zero_stage=0),
          dict(size=4, train__zero_stage=2), dict(size=4, train__grain=4, checkpoint__blocking=True)]
SAID = re.compile(r"memory of rank (\d+) of (\d+): at most ([\d.]+) MiB, planned ([\d.]+) MiB")


class Memory(LabCase):
    def job_of(self, name, case):
        settings = dict(case)
        size = settings.pop("size", 1)
        self.lab.write("wide.json", json.dumps(NETWORK))
        job = self.lab.job(name, world={"min": size, "max": size}, model__config=self.lab.path("wide.json"),
                           train__steps=2, train__global_batch=4 * case.get("train__grain", 1), checkpoint__every_steps=1,
                           **settings)
        if "train__ema" not in case:
            del job["train"]["ema"]
        return job

    def plan(self, job, ranks):
        """{name of the line: MiB of a rank in a world of so many}; takes none of it."""
        code, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "plan", "--job", self.lab.job_file(job), "--ranks",
                                  str(ranks), timeout=30)
        self.assertEqual(code, 0, text)
        lines = [line.rsplit(None, 1 if ranks == 1 else 2) for line in text.splitlines()[1:]]
        return {line[0].strip(): float(line[-1]) for line in lines}

    def check(self, job, said, size):
        plan = self.plan(job, size)
        parts = sum(mib for name, mib in plan.items() if name != "sum" and not name.startswith("bytes"))
        self.assertAlmostEqual(plan["sum"], parts, delta=1)
        self.assertEqual(sorted(int(rank) for rank, _, _, _ in said), list(range(size)))
        measured = max(float(mib) for _, _, mib, _ in said)
        print("%s: planned %.0f MiB, measured %.0f" % (job["name"], plan["sum"], measured), flush=True)
        self.assertGreater(measured, 200)  # mostly the parameters'
        self.assertGreaterEqual(plan["sum"], measured)
        self.assertLessEqual(plan["sum"], MORE * measured)

    def test_alone(self):
        for i, case in enumerate(ALONE):
            with self.subTest(**case):
                job = self.job_of("alone-%d" % i, case)
                code, text = self.lab.train(job)
                self.assertEqual(code, 0, text)
                self.check(job, SAID.findall(text), 1)

    def test_worlds(self):
        cluster = self.lab.cluster(nodes=2, slots=2)
        for i, case in enumerate(WORLDS):
            with self.subTest(**case):
                job = self.job_of("world-%d" % i, case)
                cluster.submit(job)
                cluster.finish(job)
                text = ""
                for folder, _, names in os.walk(cluster.folder):
                    for name in names:
                        if "/%s/" % job["name"] in folder + "/" and name.startswith("rank"):
                            with open(os.path.join(folder, name)) as file:
                                text += file.read()
                self.check(job, SAID.findall(text), case["size"])

    def weights(self, job):
        """The weights' file of the first checkpoint that is there, and its manifest."""
        manifest = self.lab.manifests(job)[0][0]
        return os.path.join(os.path.dirname(manifest), "unet/diffusion_pytorch_model.safetensors"), manifest

    def test_first_weights(self):
        """Those of a file and of another job need no more than random ones, and are the same bits."""
        first = self.job_of("first", dict(checkpoint__blocking=True))
        self.assertEqual(self.lab.train(first)[0], 0)
        path, manifest = self.weights(first)
        for name, init in (("file", path), ("job", {"checkpoint": manifest, "optimizer": False})):
            with self.subTest(name):
                job = self.job_of(name, dict(checkpoint__blocking=True, train__seed=99, checkpoint__keep_last=9,
                                             model__init=init))
                code, text = self.lab.train(job)
                self.assertEqual(code, 0, text)
                with open(path, "rb") as ours, open(self.weights(job)[0], "rb") as theirs:
                    self.assertEqual(ours.read(), theirs.read())
                self.check(job, SAID.findall(text), 1)

    def test_bytes_of_a_parameter(self):
        """No more than 25 on one rank without an EMA and without a copy for saves."""
        plan = self.plan(self.job_of("bytes", dict(checkpoint__blocking=True)), 1)
        self.assertLess(plan["bytes a parameter, without grain"], 25)

    def test_never_fits(self):
        job = self.job_of("never", dict(checkpoint__blocking=True))
        self.lab.write("wide.json", json.dumps(dict(NETWORK, block_out_channels=[64, 128, 1 << 16])))
        code, text = self.lab.train(job)
        self.assertEqual(code, 78, text)
        for word in ("wide.json", "one of 1 ranks needs at least", "moments", "this machine has"):
            self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
