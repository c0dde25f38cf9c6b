#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From tars to a job: sdprep encode makes a dataset by a tiny model, and a job that names nothing but its folder trains on it.
Killed and resized it ends with the digest of the job that nothing disturbed. What does not fit is refused with a text that says
what to write."""
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import unittest

from encoded import MODEL, SDPREP, png, write_tar
from lab import BIN, SOURCE, UNET, LabCase

GATE = "loop.compute=stop@%d"
NEVER_RETRY = 78
# Of pyarrow.parquet, as much as the page uses.
STAND_IN = """
import pickle


class Batch(list):
    def to_pylist(self):
        return list(self)


class ParquetFile:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.rows = pickle.load(file)

    def iter_batches(self, size, columns):
        rows = [{name: row[name] for name in columns} for row in self.rows]
        for at in range(0, len(rows), size):
            yield Batch(rows[at:at + size])
"""


class Encoded(LabCase):
    n_samples = 20

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = random.Random(5)
        cls.unet = cls.lab.write("unet64.json", json.dumps(dict(UNET, cross_attention_dim=64)))
        for name, n, side in (("encoded", 24, 64), ("more", 12, 64), ("larger", 4, 128)):
            members = []
            for i in range(n):
                members += [("%05d.png" % i, png(rng, rng.randint(40, 70), rng.randint(40, 70))),
                            ("%05d.txt" % i, b"%s, number %d" % (name.encode(), i))]
            write_tar(cls.lab.path("raw-" + name, "0.tar"), members)
            recipe = cls.lab.write(name + ".json", json.dumps({"model": MODEL, "side": side, "threads": 1}))
            code, text = cls.lab.run(SDPREP, "encode", "--recipe", recipe, "--in", cls.lab.path("raw-" + name), "--out",
                                     cls.lab.path(name))
            assert code == 0, text

    def job(self, name, *folders, **changes):
        """Its data section names folders and nothing else."""
        job = self.lab.job(name, model__config=self.unet, train__steps=12, checkpoint__every_steps=3, train__caption_drop=0.3,
                           train__ema={"decay": 0.9, "start_step": 4})
        job["data"] = {"streams": [{"uri": self.lab.path(folder)} for folder in folders or ("encoded",)]}
        for key, value in changes.items():
            job["data"][key] = value
        return job

    def test_killed_and_resized(self):
        reference = self.lab.reference(self.job("alone"))
        self.assertTrue(all(0 < line["loss"] < 5 for line in reference.metrics), reference.metrics)
        spelt_out = self.job("spelt-out", latents="latents", text="text", latent_scale=1.0,
                             empty_text=self.lab.path("encoded/empty.npy"))
        self.check_same(self.lab.reference(spelt_out), reference, "spelt out")
        identities = {self.lab.manifests(job)[-1][1]["job_identity"] for job in (self.job("alone"), spelt_out)}
        self.assertEqual(len(identities), 1)

        cluster = self.lab.cluster(nodes=2, patient=["node1", "node2"])
        self.addCleanup(cluster.down)
        cluster.fault("node2", GATE % 9, GATE % 7)
        job = self.job("cluster")
        cluster.submit(job)
        os.kill(self.lab.stopped(), signal.SIGKILL)
        pid = self.lab.stopped()
        cluster.ctl("job", "resize", job["name"], "--world", "1")
        cluster.wait(job, "resizing")
        os.kill(pid, signal.SIGCONT)
        self.check_same(cluster.finish(job), reference, "killed and resized")
        status = cluster.status(job)
        self.assertEqual((status["world"]["size"], status["generation"], len(status["incidents"])), (1, 3, 1))
        self.lab.forget_faults()

        # What was written of its data has changed when a rank begins anew: no step is trained by other rules.
        job = self.job("changed", "copied")
        shutil.copytree(self.lab.path("encoded"), self.lab.path("copied"))
        cluster.fault("node1", GATE % 9)
        cluster.submit(job)
        pid = self.lab.stopped()
        with open(self.lab.path("copied/encoder.json"), "a") as file:
            file.write("\n")
        os.kill(pid, signal.SIGKILL)
        cluster.wait(job, "failed")
        reason = cluster.status(job)["reason"]
        self.assertIn("copied/encoder.json is not what it was when the job was submitted", reason)

    def test_two_streams_of_one_encoder(self):
        job = self.job("two", "encoded", "more", shuffle_window=8)
        reference = self.lab.reference(job)
        spelt_out = self.job("two-spelt-out", "encoded", "more", shuffle_window=8,
                             empty_text=self.lab.path("encoded/empty.npy"))
        self.check_same(self.lab.reference(spelt_out), reference, "two streams")

    def copy(self, name, **changes):
        """The dataset with another encoder.json; None: without a key."""
        folder = self.lab.path(name)
        shutil.copytree(self.lab.path("encoded"), folder, ignore=shutil.ignore_patterns("index.sdtrain*"))
        with open(folder + "/encoder.json") as file:
            encoder = json.load(file)
        encoder.update(changes)
        with open(folder + "/encoder.json", "w") as file:
            json.dump({key: value for key, value in encoder.items() if value is not None}, file)
        return name

    def refused(self, job, *words):
        """By the trainer, and by sdctl before it asks any cluster; neither writes anything."""
        path = self.lab.job_file(job)
        for command, expected in (([os.path.join(BIN, "sdtrainer"), "run", "--job", path], NEVER_RETRY),
                                  ([self.lab.path("bin/sdctl"), "job", "start", "-f", path], 1)):
            code, text = self.lab.run(*command)
            with self.subTest(words, program=command[0]):
                self.assertEqual(code, expected, text)
                for word in words:
                    self.assertIn(word, text)
        self.assertEqual(self.lab.manifests(job), [])

    def test_refusals(self):
        # A dataset that does not describe itself.
        plain = self.job("bad", "data")
        self.refused(plain, "data.empty_text: missing; train.caption_drop 0.3 needs it, and no stream has an encoder.json",
                     "name the .npy with the embedding of the empty caption, or set train.caption_drop to 0")
        with open(self.lab.path("data/index.json")) as file:
            index = file.read()
        with open(self.lab.path("data/index.json"), "w") as file:
            file.write(index.replace('"latents"', '"latentz"'))
        self.refused(dict(plain, data=dict(plain["data"], empty_text=self.lab.path("data/empty.npy"))),
                     'no column "latents"', "there are caption, latentz, text", "there is no encoder.json that would name it",
                     "write data.latents with the name of its column of latents")
        # Streams that do not go together.
        other = self.copy("other-weights", weights="0" * 32)
        self.refused(self.job("bad", "encoded", other), "data.streams[1].uri: ",
                     "%s/encoder.json: weights: %s, but " % (self.lab.path(other), "0" * 32),
                     "%s/encoder.json has " % self.lab.path("encoded"))
        other = self.copy("other-scale", scaling_factor=0.13025)
        self.refused(self.job("bad", "encoded", other), "%s/encoder.json: scaling_factor: 0.13025" % self.lab.path(other),
                     "what different encoders made cannot be trained together")
        self.refused(self.job("bad", "encoded", "larger"), "%s/encoder.json: latents.shape: 4x16x16, but %s" %
                     (self.lab.path("larger"), "file://" + self.lab.path("encoded")), "has 4x8x8")
        # Of a later sdtrain, of another dataset, of nothing.
        self.refused(self.job("bad", self.copy("newer", version=2)),
                     "%s/encoder.json: version: of version 2, which a newer sdtrain wrote; this one reads version 1" %
                     self.lab.path("newer"))
        self.refused(self.job("bad", self.copy("sides", latents={"column": "latents", "shape": [4, 16, 16]})),
                     "sides/encoder.json: latents.shape: 4x16x16, but column latents holds 4x8x8: it is another dataset's")
        self.refused(self.job("bad", self.copy("no-merges", merges=None)), "no-merges/encoder.json: merges: missing")
        # What the job file says beside it.
        self.refused(self.job("bad", text="latents"), "data.text: latents contradicts ", "text.column: text; leave data.text out")
        self.refused(self.job("bad", latent_scale=0.18215), "data.latent_scale: 0.18215 contradicts ",
                     "encoder.json: scaling_factor: latents are multiplied by ")
        # A network for other latents or text; any side will do.
        network = self.lab.write("unet32.json", json.dumps(UNET))
        job = self.job("bad")
        self.refused(dict(job, model={"config": network}), "unet32.json: cross_attention_dim 32: the data have 64")
        network = self.lab.write("unet8.json", json.dumps(dict(UNET, cross_attention_dim=64, in_channels=8, out_channels=8)))
        self.refused(dict(job, model={"config": network}), "unet8.json: in_channels: 8, but the data's latents have 4")
        # The file that encoder.json names.
        os.remove(self.lab.path(self.copy("no-empty"), "empty.npy"))
        self.refused(self.job("bad", "no-empty"), "what ", "no-empty/encoder.json names: data.empty_text: ",
                     "no-empty/empty.npy")
        self.refused(self.job("bad", self.copy("outside", empty_text="../encoded/empty.npy")),
                     'outside/encoder.json: empty_text: "../encoded/empty.npy" is not a file of this folder')

    def test_commands_of_the_page(self):
        """What docs/operating/data.md says, word for word but for places, the pictures' side and the job's sizes."""
        with open(os.path.join(SOURCE, "docs/operating/data.md"), encoding="utf-8") as file:
            section = re.search(r"^## From pictures and captions$(.*?)^## ", file.read(), re.M | re.S).group(1)
        shutil.copytree(MODEL, self.lab.path("models/stable-diffusion-2-base"))
        os.mkdir(self.lab.path("models/stable-diffusion-2-base/unet"))
        shutil.copy(self.unet, self.lab.path("models/stable-diffusion-2-base/unet/config.json"))
        shutil.copytree(self.lab.path("raw-more"), self.lab.path("data/raw"))
        cluster = self.lab.cluster(nodes=1)
        self.addCleanup(cluster.down)
        blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)
        self.assertEqual(len(blocks), 2)
        for block in blocks:
            for old, new in ((r"(?<=[ \"])/(models|data|checkpoints)/", self.lab.folder + r"/\1/"), ('"side": 256', '"side": 64'),
                             ('"global_batch": 64, "grain": 8, "steps": 100000', '"global_batch": 8, "grain": 1, "steps": 2')):
                block = re.sub(old, new, block)
            environment = dict(self.lab.environment, PATH="%s:%s:%s" % (self.lab.path("bin"), BIN, os.environ["PATH"]),
                               **cluster.environment)
            done = subprocess.run(["sh", "-e", "-c", block], env=environment, cwd=self.lab.folder, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=300, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, done.stdout)
        job = {"checkpoint": {"uri": self.lab.path("checkpoints/mine")}}
        self.assertEqual(self.lab.manifests(job)[-1][1]["step"], 2)

    def test_parquet_of_the_page(self):
        """Its Python makes tars of what a stand-in for pyarrow reads: all pictures that are there, in order, with their captions."""
        with open(os.path.join(SOURCE, "docs/operating/data.md"), encoding="utf-8") as file:
            script = self.lab.write("parquet/script.py", re.search(r"^```python\n(.*?)^```$", file.read(), re.M | re.S).group(1))
        self.lab.write("parquet/pyarrow/__init__.py", "")
        self.lab.write("parquet/pyarrow/parquet.py", STAND_IN)
        rng = random.Random(8)
        rows = [{"key": "%09d" % i, "jpg": png(rng, 40, 50), "caption": "caf\u00e9 %d" % i, "status": "success"} for i in range(100)]
        rows[3].update(jpg=None, caption="not fetched")
        rows[4]["caption"] = None
        for name in "a.parquet", "b.parquet":
            with open(self.lab.path("parquet", name), "wb") as file:
                pickle.dump(rows[:70] if name == "a.parquet" else rows[70:], file)
        code, text = self.lab.run(sys.executable, script, self.lab.path("parquet/a.parquet"), self.lab.path("parquet/b.parquet"))
        self.assertEqual(code, 0, text)
        found = []
        for name in "a.tar", "b.tar":
            with tarfile.open(self.lab.path("parquet", name)) as tar:
                found += [(member.name, tar.extractfile(member).read()) for member in tar]
        wanted = [member for row in rows if row["jpg"] for member in (
            (row["key"] + ".jpg", row["jpg"]), (row["key"] + ".txt", (row["caption"] or "").encode()))]
        self.assertEqual([name for name, _ in found], [name for name, _ in wanted])
        self.assertTrue(found == wanted)  # whose bytes are nothing to print
        recipe = self.lab.write("parquet/recipe.json", '{"side": 64}')
        code, text = self.lab.run(SDPREP, "check", "--recipe", recipe, "--in", self.lab.path("parquet"))
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r" 99 samples, .* 0 rejected")

    def test_any_side_of_latents(self):
        """The network's sample_size is 16, and latents are 4 x 8 x 8 and 4 x 16 x 16: each is trained as it comes."""
        job = self.job("side", "larger")
        job["train"]["steps"] = 2
        self.assertEqual(self.lab.reference(job).metrics[-1]["step"], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
