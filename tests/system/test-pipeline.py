#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job's pictures and its pipeline through sdctl: what our own readers find in the folder is the checkpoint's U-Net and the
model's VAE and text encoder, and nothing half is ever left under its name. tests/interop/pipeline has diffusers load it."""
import glob
import json
import os
import signal
import struct
import subprocess
import unittest

import dataset
from encoded import MODEL, copy_model
from lab import BIN, UNET, LabCase, process_state, until

FILES = ["model_index.json", "scheduler/scheduler_config.json", "text_encoder/config.json", "text_encoder/model.safetensors",
         "tokenizer/merges.txt", "tokenizer/special_tokens_map.json", "tokenizer/tokenizer_config.json", "tokenizer/vocab.json",
         "unet/config.json", "unet/diffusion_pytorch_model.safetensors", "vae/config.json",
         "vae/diffusion_pytorch_model.safetensors"]


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def tree(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)


def header(path):
    with open(path, "rb") as file:
        return json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))


class Pipeline(LabCase):
    n_samples = 4

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dataset.write(cls.lab.path("latents"), 20, 1, latents=(4, 8, 8), text=(77, 64))
        cls.lab.write("wide.json", json.dumps(dict(UNET, cross_attention_dim=64)))
        cls.cluster = cls.lab.cluster(nodes=1)
        cls.addClassCleanup(cls.cluster.down)
        cls.job = cls.make_job("shown", train__prediction="v_prediction", train__noise_schedule={"beta_end": 0.02})
        cls.cluster.submit(cls.job)
        cls.cluster.finish(cls.job)

    @classmethod
    def make_job(cls, name, **changes):
        changes = dict(dict(model__config=cls.lab.path("wide.json"), train__steps=4, train__ema={"start_step": 2},
                            checkpoint__every_steps=2, checkpoint__keep_last=2), **changes)
        return cls.lab.job(name, data=cls.lab.path("latents"), **changes)

    def export(self, name, *options, model=MODEL, job="shown"):
        return self.cluster.ctl_code("job", "export", job, "--pipeline", self.lab.path(name), "--model", model, *options)

    def begin(self, name, fault, job="shown"):
        environment = dict(self.lab.environment, SDTRAIN_FAULT=fault, **self.cluster.environment)
        return subprocess.Popen([self.cluster.sdctl, "job", "export", job, "--pipeline", self.lab.path(name), "--model", MODEL],
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def left(self, name):
        return glob.glob(self.lab.path(name) + "*")

    def refused(self, code, *words, **how):
        found, text = self.export("refused", **how)
        self.assertEqual(found, code, text)
        for word in words:
            self.assertIn(word, text)
        self.assertEqual(self.left("refused"), [])

    def test_a_whole_pipeline(self):
        out = self.lab.path("pipeline")
        code, text = self.export("pipeline/")  # a slash at its end is not a part of the name
        self.assertEqual(code, 0, text)
        self.assertIn("averaged weights of step 4", text)
        self.assertEqual(tree(out), FILES)
        self.assertEqual(self.left("pipeline"), [out])
        self.cluster.ctl("job", "export", "shown", "--ema", "--out", self.lab.path("ema.safetensors"))
        self.assertEqual(read(out, "unet/diffusion_pytorch_model.safetensors"), read(self.lab.path("ema.safetensors")))
        checkpoint = os.path.dirname(self.lab.manifests(self.job)[-1][0])
        self.assertEqual(read(out, "unet/config.json"), read(checkpoint, "unet_ema/config.json"))
        for name in FILES:
            if name.startswith("tokenizer/"):
                self.assertEqual(read(out, name), read(MODEL, name))
        scheduler = json.loads(read(out, "scheduler/scheduler_config.json"))
        wanted = {"_class_name": "DDIMScheduler", "prediction_type": "v_prediction", "beta_start": 0.00085, "beta_end": 0.02,
                  "num_train_timesteps": 1000, "beta_schedule": "scaled_linear", "steps_offset": 1,
                  "set_alpha_to_one": False, "clip_sample": False, "timestep_spacing": "leading"}
        self.assertEqual({key: scheduler[key] for key in wanted}, wanted)
        index = json.loads(read(out, "model_index.json"))
        for part, of in (("unet", "UNet2DConditionModel"), ("vae", "AutoencoderKL"), ("text_encoder", "CLIPTextModel")):
            self.assertEqual(index[part][1], of)
        # One type, today's names: else its parts could not be run together.
        for name in FILES[3], FILES[-1], FILES[9]:
            tensors = {key: value for key, value in header(os.path.join(out, name)).items() if key != "__metadata__"}
            self.assertEqual({value["dtype"] for value in tensors.values()}, {"F32"}, name)
        self.assertTrue(all(key.startswith("text_model.") for key in header(os.path.join(out, FILES[3])) if key != "__metadata__"))
        self.assertEqual(json.loads(read(out, "text_encoder/config.json"))["torch_dtype"], "float32")
        # Our own readers find the same VAE, tokenizer and text encoder in it; a model may be a folder of links.
        os.makedirs(self.lab.path("links"))
        for at in ("vae", "text_encoder", "tokenizer"):
            os.makedirs(self.lab.path("links", at))
            for name in os.listdir(os.path.join(MODEL, at)):
                os.symlink(os.path.join(MODEL, at, name), self.lab.path("links", at, name))
        pictures = set()
        for model in (MODEL, out, self.lab.path("links")):
            self.cluster.ctl("job", "sample", "shown", "--out", self.lab.path("grid.png"), "--model", model, "--samples", "2",
                             "--seed", "5", "--caption", "a cat", "--caption", "-f")
            pictures.add(read(self.lab.path("grid.png")))
        self.assertEqual(len(pictures), 1)
        code, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "sample", "--job", self.lab.job_file(self.job), "--out",
                                  self.lab.path("same.png"), "--model", MODEL, "--samples", "2", "--seed", "5", "--caption",
                                  "a cat", "--caption", "-f")
        self.assertEqual(code, 0, text)
        self.assertEqual({read(self.lab.path("same.png"))}, pictures)
        code, text = self.export("again", model=self.lab.path("links"))
        self.assertEqual(code, 0, text)
        self.assertEqual([read(self.lab.path("again"), name) for name in FILES], [read(out, name) for name in FILES])

    def test_what_is_there_stays(self):
        os.makedirs(self.lab.path("mine"))
        self.lab.write("file", "mine")
        os.symlink("nowhere", self.lab.path("dangling"))
        for name in ("mine", "file", "dangling"):
            code, text = self.export(name)
            self.assertEqual(code, 1, text)
            self.assertIn("is there already", text)
            self.assertEqual(self.left(name), [self.lab.path(name)])
        self.assertEqual(os.listdir(self.lab.path("mine")), [])
        # Somebody makes it while it is written.
        life = self.begin("overtaken", "pipeline.rename=stop@1")
        until(lambda: process_state(life.pid) == "T", "a pipeline that is written")
        os.makedirs(self.lab.path("overtaken"))
        os.kill(life.pid, signal.SIGCONT)
        text = life.communicate(timeout=60)[0]
        self.assertEqual((life.returncode, self.left("overtaken")), (1, [self.lab.path("overtaken")]), text)
        self.assertIn("is there already", text)
        self.assertEqual(os.listdir(self.lab.path("overtaken")), [])

    def test_interrupted_and_killed(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            for point in ("pipeline.part=stop@1", "pipeline.part=stop@2", "pipeline.rename=stop@1"):
                life = self.begin("stopped", point)
                until(lambda: process_state(life.pid) == "T", "a pipeline that is written")
                self.assertEqual(len(self.left("stopped.part-")), 1)
                os.kill(life.pid, number)
                os.kill(life.pid, signal.SIGCONT)
                text = life.communicate(timeout=60)[0]
                self.assertEqual((life.returncode, self.left("stopped")), (-number, []), text)
        life = self.begin("killed", "pipeline.rename=kill@1")
        life.communicate(timeout=60)
        self.assertEqual(life.returncode, -signal.SIGKILL)
        self.assertFalse(os.path.exists(self.lab.path("killed")))
        self.assertEqual(self.export("killed")[0], 0)
        self.assertEqual(tree(self.lab.path("killed")), FILES)

    def test_pictures_interrupted(self):
        """Drawing takes hours: whoever ends sdctl leaves neither the program that draws nor a file."""
        os.makedirs(self.lab.path("temporary"))
        environment = dict(self.lab.environment, SDTRAIN_FAULT="sample.step=stop@1", TMPDIR=self.lab.path("temporary"),
                           **self.cluster.environment)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            life = subprocess.Popen([self.cluster.sdctl, "job", "sample", "shown", "--out", self.lab.path("ended.png"), "--model",
                                     MODEL, "--samples", "1"], env=environment, stdout=subprocess.DEVNULL)
            drawing = int(until(lambda: read("/proc/%d/task/%d/children" % (life.pid, life.pid)), "a program that draws"))
            until(lambda: process_state(drawing) == "T", "a step that is drawn")
            os.kill(life.pid, number)
            self.assertEqual(life.wait(60), -number)
            until(lambda: process_state(drawing) in (None, "Z"), "the end of the program that draws")
            self.assertEqual((os.listdir(self.lab.path("temporary")), self.left("ended")), ([], []))

    def test_no_room(self):
        life = self.begin("full", "pipeline.room=enospc")
        text = life.communicate(timeout=60)[0]
        self.assertEqual((life.returncode, self.left("full")), (1, []), text)
        self.assertRegex(text, r"the pipeline takes 0\.\d\d GB, and [\d.]+ GB are free")
        life = self.begin("full", "file.write=enospc@3")
        text = life.communicate(timeout=60)[0]
        self.assertEqual((life.returncode, self.left("full")), (1, []), text)
        self.assertIn("No space left", text)
        code, text = self.export("no/such/folder")
        self.assertNotEqual(code, 0)
        self.assertIn("/no/such", text)

    def test_models_that_cannot_be(self):
        self.refused(1, "latent_channels is 8", "wide.json", model=copy_model(self.lab.path("channels"), vae={"latent_channels": 8}))
        self.refused(1, "hidden_size is 128", "width 64", model=copy_model(self.lab.path("width"), text_encoder={"hidden_size": 128}))
        facts = {"version": 1, "weights": "0" * 32, "merges": "0" * 32, "scaling_factor": 0.18215, "empty_text": "empty.npy",
                 "latents": {"column": "latents", "shape": [4, 8, 8]}, "text": {"column": "text", "shape": [77, 64]}}
        path = self.lab.write("latents/encoder.json", json.dumps(facts))
        try:
            self.refused(1, "vae/config.json: scaling_factor is 6.994", "latents times 0.18215")
        finally:
            os.remove(path)
        self.refused(3, "/nowhere/vae/config.json", model=self.lab.path("nowhere"))
        os.symlink("loop", self.lab.path("loop"))
        self.refused(1, "/loop/vae/config.json", model=self.lab.path("loop"))
        for name in FILES[3], FILES[-1]:
            model = copy_model(self.lab.path("cut-" + name.split("/", maxsplit=1)[0]))
            path = os.path.join(model, name)
            os.truncate(path, os.path.getsize(path) - 1000)
            self.refused(1, path, model=model)
        model = copy_model(self.lab.path("bare"))
        os.remove(model + "/tokenizer/vocab.json")
        self.refused(3, "tokenizer/vocab.json", model=model)

    def test_words(self):
        for options, word in (([], "either --out FILE or --pipeline FOLDER"), (["--pipeline", "x"], "belong together"),
                              (["--out", "x", "--model", "y"], "belong together"),
                              (["--out", "x", "--pipeline", "y"], "either --out FILE or --pipeline FOLDER")):
            code, text = self.cluster.ctl_code("job", "export", "shown", *options)
            self.assertEqual(code, 2, text)
            self.assertIn(word, text)
        many = [word for i in range(65) for word in ("--caption", "%d" % i)]
        code, text = self.cluster.ctl_code("job", "sample", "shown", "--out", "x", *many)
        self.assertEqual(code, 2, text)
        self.assertIn("64 texts at most", text)
        # 64 reach the trainer, which says what it misses.
        code, text = self.cluster.ctl_code("job", "sample", "shown", "--out", "x", "--model", self.lab.path("nowhere"), *many[2:])
        self.assertEqual(code, 1, text)
        self.assertIn("/nowhere/vae/config.json", text)

    def test_swept_while_it_is_read(self):
        """What a running job removes meanwhile has a newer one in its place."""
        job = self.make_job("runs", train__steps=4000)
        self.cluster.fault("node1", "loop.compute=slow@*")
        self.cluster.submit(job)
        until(lambda: self.cluster.status(job).get("checkpoint"), "a checkpoint")
        life = self.begin("swept", "pipeline.part=stop@2", job="runs")
        until(lambda: process_state(life.pid) == "T", "a pipeline that is written")
        seen = [path for path, _ in self.lab.manifests(job)]
        until(lambda: not any(os.path.exists(path) for path in seen), "their end")
        os.kill(life.pid, signal.SIGCONT)
        text = life.communicate(timeout=120)[0]
        self.cluster.ctl("job", "stop", "runs")
        self.assertEqual(life.returncode, 0, text)
        self.assertEqual(tree(self.lab.path("swept")), FILES)
        self.assertEqual(self.left("swept"), [self.lab.path("swept")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
