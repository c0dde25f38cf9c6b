#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sdctl job diff` and a rank say the same of two jobs: whether the second goes on from the first's checkpoints, and if not, in
which keys they differ."""
import json
import os
import shutil
import unittest

import dataset
from lab import BIN, LabCase

SHORT = dict(train__steps=2, checkpoint__every_steps=2)
# Each change, and the key that both name; None: it changes no bit.
CHANGES = [
    (dict(checkpoint__keep_last=5), None),
    (dict(train__zero_stage=2), None),
    (dict(world__max=2), None),
    (dict(train__seed=17), None),  # the default
    (dict(train__seed=18), "train.seed"),
    (dict(train__optimizer__lr=2e-3), "train.optimizer.lr"),
    (dict(train__ema__decay=0.5), "train.ema.decay"),
    (dict(train__reduction="exact64"), "train.reduction"),
    (dict(train__prediction="v_prediction"), "train.prediction"),
    (dict(train__noise_schedule={"steps": 900}), "train.noise_schedule.steps"),
    (dict(data__latent_scale=0.75), "data.latent_scale"),
    (dict(train__grain=2, world__max=2), "train.grain"),
]


class JobDiff(LabCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.first = cls.lab.job("first", **SHORT)
        cls.lab.reference(cls.first)
        cls.manifest = cls.lab.manifests(cls.first)[-1][0]

    def diff(self, first, second):
        code, text = self.lab.run(os.path.join(BIN, "sdctl"), "job", "diff", first, second, "-o", "json")
        self.assertEqual(code, 0, text)
        return json.loads(text)

    def both(self, job):
        """(what sdctl says of the job beside the first one's checkpoint, whether a rank goes on from it, the rank's words)."""
        said = self.diff(self.manifest, self.lab.job_file(job))
        shutil.rmtree(job["checkpoint"]["uri"], ignore_errors=True)
        shutil.copytree(self.first["checkpoint"]["uri"], job["checkpoint"]["uri"])
        code, text = self.lab.train(dict(job, train=dict(job["train"], steps=3)))
        self.assertIn(code, (0, 78), text)
        return said, code == 0, text

    def check(self, job, key):
        said, goes_on, text = self.both(job)
        self.assertEqual(goes_on, key is None, text)
        self.assertEqual(said["goes_on"], goes_on, said)
        self.assertEqual([row["key"] for row in said["differences"] if row["bits"]], [key] if key else [])
        if key:
            self.assertIn(key + " was ", text)
            self.assertNotIn("only the hashes are known", text)

    def test_sdctl_and_a_rank_agree(self):
        for i, (changes, key) in enumerate(CHANGES):
            with self.subTest(changes):
                self.check(self.lab.job("second-%d" % i, **dict(SHORT, **changes)), key)

    def test_what_the_file_names(self):
        with open(self.lab.path("unet.json")) as file:
            config = json.load(file)
        groups = config["norm_num_groups"]
        config["norm_num_groups"] = 2 if groups == 1 else 1
        other = self.lab.write("other-unet.json", json.dumps(config))
        self.check(self.lab.job("network", model__config=other, **SHORT), "model.config (hash)")
        same = self.lab.write("same-unet.json", json.dumps(dict(config, norm_num_groups=groups), indent=3))
        self.check(self.lab.job("same-network", model__config=same, **SHORT), None)
        empty = self.lab.path("empty.npy")
        with open(self.first["data"]["empty_text"], "rb") as file:
            data = bytearray(file.read())
        data[-1] ^= 1
        with open(empty, "wb") as file:
            file.write(data)
        self.check(self.lab.job("caption", data__empty_text=empty, **SHORT), "data.empty_text (hash)")

    def test_other_data(self):
        """The compact index is told by a rank alone, index.json by both."""
        folder = self.lab.path("other-data")
        dataset.write(folder, 60, 8, latents=self.latents)
        job = self.lab.job("data", data=folder, data__empty_text=self.first["data"]["empty_text"], **SHORT)
        said, goes_on, text = self.both(job)
        self.assertFalse(goes_on, text)
        self.assertIs(said["goes_on"], False)
        self.assertEqual([row["key"] for row in said["differences"] if row["bits"]], ["data.streams[0].index_json"])
        self.assertIn("data.streams[0].samples was 96, is 60", text)
        self.assertIn("data.streams[0].shards was 5, is 3", text)
        saved = self.lab.job("data-saved", data=folder, data__empty_text=self.first["data"]["empty_text"], **SHORT)
        self.lab.reference(saved)
        said = self.diff(self.manifest, self.lab.manifests(saved)[-1][0])
        self.assertEqual([row["key"] for row in said["differences"]],
                         ["data.streams[0].index", "data.streams[0].index_json", "data.streams[0].samples",
                          "data.streams[0].shards"])
        self.assertIs(said["goes_on"], False)

    def test_another_owner(self):
        """A job that takes a folder over is told what it does not go on with, and why."""
        job = self.lab.job("taken", train__seed=5, **SHORT)
        shutil.copytree(self.first["checkpoint"]["uri"], job["checkpoint"]["uri"])
        for name in os.listdir(job["checkpoint"]["uri"]):
            if name.startswith("step-"):
                shutil.rmtree(os.path.join(job["checkpoint"]["uri"], name))
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        self.assertIn("what owner/1 wrote belongs to another job or other data, and stays: train.seed was 17, is 5", text)


if __name__ == "__main__":
    unittest.main()
