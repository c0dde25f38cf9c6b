#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that a rank would refuse for what sdctl can read is refused before the job is submitted, in the same words: the weights,
checkpoints and plans that a job begins with. A whole file of another kind is never called damaged."""
import json
import os
import socket
import struct
import time
import unittest

import dataset
from encoded import MODEL, SDPREP, EncodeCase, copy_model
from lab import BIN, UNET, LabCase

NEVER_RETRY, DATA_CORRUPT, FAILED = 78, 82, 1
LFS = ("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 3463726500\n" % ("4d" * 32)).encode()


def read_weights(path):
    """{name: (dtype, shape, bytes)}"""
    with open(path, "rb") as file:
        n, = struct.unpack("<Q", file.read(8))
        head, body = json.loads(file.read(n)), file.read()
    head.pop("__metadata__", None)
    return {name: (e["dtype"], e["shape"], body[e["data_offsets"][0]:e["data_offsets"][1]]) for name, e in head.items()}


def weights_file(tensors):
    head, body = {"__metadata__": {"format": "pt"}}, b""
    for name in sorted(tensors):
        dtype, shape, data = tensors[name]
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


class BeginCase(LabCase):
    latents = dataset.SMALL

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.first = cls.lab.job("first", train__steps=3)
        cls.lab.reference(cls.first)
        cls.manifest = cls.lab.manifests(cls.first)[-1][0]
        cls.tensors = read_weights(os.path.join(os.path.dirname(cls.manifest), "unet/diffusion_pytorch_model.safetensors"))

    def file(self, name, content):
        path = self.lab.path(name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def job(self, **changes):
        return self.lab.job("bad", **{"train__steps": 2, **changes})

    def start(self, job, *arguments, **environment):
        """Runs sdctl on it without a cluster."""
        self.lab.environment.update(environment)
        try:
            return self.lab.run(self.lab.path("bin/sdctl"), "job", "start", "-f", self.lab.job_file(job), "--dry-run", *arguments)
        finally:
            for name in environment:
                del self.lab.environment[name]

    def refused(self, job, *words, code=NEVER_RETRY):
        got, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "run", "--job", self.lab.job_file(job))
        self.assertEqual(got, code, text)
        error = [line for line in text.splitlines() if " error " in line][-1]
        again, said = self.start(job)
        self.assertEqual(again, FAILED, said)
        for word in words:
            self.assertIn(word, error)
            self.assertIn(word, said)
        self.assertFalse(os.path.exists(self.lab.path("checkpoints/bad/owner/1")))


class Weights(BeginCase):
    def refused_file(self, content, *words, name="w.safetensors", code=NEVER_RETRY):
        path = self.file(name, content)
        with self.subTest(words):
            self.refused(self.job(model__init=path), "model.init", path, *words, code=code)

    def test_what_is_taken(self):
        half = {name: ("BF16", shape, b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4)))
                for name, (_, shape, data) in self.tensors.items()}
        for tensors in (self.tensors, half):
            job = self.lab.job("good", train__steps=1, model__init=self.file("w.safetensors", weights_file(tensors)),
                               checkpoint__uri=self.lab.path("checkpoints", "good-%d" % len(next(iter(tensors.values()))[2])))
            code, text = self.start(job)
            self.assertEqual(code, 0, text)
            self.assertIn("would be submitted", text)
            self.assertEqual(self.lab.train(job)[0], 0)

    def test_files_of_other_kinds(self):
        self.refused_file(LFS, "is not a safetensors file but a pointer of Git LFS", "git lfs pull")
        self.refused_file(b"PK\3\4" + b"\0" * 200, "a zip archive, as torch.save() writes", "convert it to safetensors")
        self.refused_file(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + b"\0" * 50, "a pickle, as torch.save() writes")
        self.refused_file(b"<html><title>404</title></html>" * 3, "an HTML page")
        self.refused_file(b"some notes of somebody, which are not weights", "is not a safetensors file")

    def test_types(self):
        wide = {name: ("F64", shape, data + data) for name, (_, shape, data) in self.tensors.items()}
        first = next(iter(self.tensors))
        self.refused_file(weights_file(wide), " is F64 (and %d more)" % (len(wide) - 1), "convert them to F32, F16 or BF16")
        _, shape, data = self.tensors[first]
        self.refused_file(weights_file(dict(self.tensors, **{first: ("I32", shape, data)})), first + " is I32;")

    def test_names(self):
        first = "conv_in.weight"
        less = {name: t for name, t in self.tensors.items() if name != first}
        self.refused_file(weights_file(less), "tensor %s is missing" % first)
        self.refused_file(weights_file(dict(self.tensors, num_batches_tracked=("I64", [], b"\0" * 8))),
                          "tensor num_batches_tracked (I64, scalar) is none of the network's")
        self.refused_file(weights_file(dict(less, conv_of=self.tensors[first])), "%s is missing; tensor conv_of (F32, " % first)
        self.refused_file(weights_file(less), "it is one of several files", name="m-00001-of-00002.safetensors")
        dtype, shape, data = self.tensors[first]
        self.refused_file(weights_file(dict(self.tensors, **{first: (dtype, shape[::-1], data)})),
                          "tensor %s is 3x3x4x16, the network's is 16x4x3x3" % first)
        for prefix in ("module.", "_orig_mod.", "unet.", "model.diffusion_model."):
            self.refused_file(weights_file({prefix + name: t for name, t in self.tensors.items()}),
                              'begin with "%s"' % prefix, "each without it")

    def test_families(self):
        sdxl = {"add_embedding.linear_1.weight": ("F16", [1280, 2816], b"\0" * (1280 * 2816 * 2))}
        self.refused_file(weights_file(dict(self.tensors, **sdxl)), "this is SDXL's U-Net (it has a tensor add_embedding")

    def test_damaged_ones(self):
        whole = weights_file(self.tensors)
        self.refused_file(whole[:-40], "data_offsets lie outside of the file", code=DATA_CORRUPT)
        self.refused_file(whole[:3000], "a safetensors header of", "in a file of 3000", code=DATA_CORRUPT)
        self.refused_file(b"", "0 bytes are too few", code=DATA_CORRUPT)


class Length(BeginCase):
    def test_a_file_that_no_rank_can_receive(self):
        path = self.lab.job_file(self.job())
        for n, code in ((50 << 10, 0), (60 << 10, FAILED)):
            with open(path, "a") as file:
                file.write(" " * (n - os.path.getsize(path)))
            got, text = self.lab.run(self.lab.path("bin/sdctl"), "job", "start", "-f", path, "--dry-run")
            self.assertEqual(got, code, text)
        self.assertIn("bad.json: the file takes ", text)
        self.assertIn(" bytes as a JSON string, and ranks receive at most 53248", text)


class Checkpoints(BeginCase):
    def test_another_network(self):
        other = self.lab.write("unets/other.json", json.dumps(dict(UNET, layers_per_block=2)))
        for optimizer in (False, True):
            self.refused(self.job(model={"config": other, "init": {"checkpoint": self.manifest, "optimizer": optimizer}}),
                         "model.init", self.manifest, "a model of", "elements")
        self.refused(self.job(model__init={"checkpoint": os.path.dirname(self.manifest)}), "expected .../step-.../manifest.json")
        job = self.job(model__init={"checkpoint": self.manifest, "optimizer": True})
        self.assertEqual(self.start(job)[0], 0)

    def resume(self, **changes):
        return self.start(self.lab.job("next", **changes), "--resume", self.manifest)

    def test_steps_that_are_done(self):
        """A world that finds its last step saved ends well; nobody asks for that."""
        for steps in (2, 3):
            code, text = self.resume(train__steps=steps)
            self.assertEqual(code, FAILED, text)
            self.assertIn("%s: the manifest is of step 3, the job ends at %d: train.steps counts from 0" %
                          (self.manifest, steps), text)
        code, text = self.resume(train__steps=4)
        self.assertEqual(code, 0, text)
        self.assertEqual(self.lab.train(self.first)[0], 0, "its last step is saved")

    def test_resume_of_what_cannot_be(self):
        other = self.lab.write("unets/two.json", json.dumps(dict(UNET, layers_per_block=2)))
        code, text = self.resume(train__steps=9, model__config=other)
        self.assertEqual(code, FAILED, text)
        self.assertIn("its job identity is another one: ", text)
        self.assertIn("model.config", text)
        code, text = self.resume(train__steps=9, train__optimizer__lr=2e-3, checkpoint__keep_last=7)
        self.assertEqual(code, FAILED, text)
        self.assertIn("its job identity is another one: train.optimizer.lr was 0.001, is 0.002", text)
        self.assertNotIn("keep_last", text)
        folder = os.path.dirname(self.manifest)
        pointer = self.lab.write("copies/%s/manifest.json" % os.path.basename(folder), LFS.decode())
        nowhere = self.lab.path("nowhere", os.path.basename(folder), "manifest.json")
        for manifest, word in ((nowhere, "no such object"), (folder, "expected .../step-.../manifest.json"),
                               (pointer, "a pointer of Git LFS"), (self.lab.path("unet.json"), "expected")):
            code, text = self.start(self.lab.job("next"), "--resume", manifest)
            self.assertEqual(code, FAILED, text)
            self.assertIn(word, text)


class Others(BeginCase):
    def test_plans(self):
        bf16 = {"train__precision": "bf16", "train__device": "cuda", "train__steps": 2}
        for content, words in ((LFS, ["a pointer of Git LFS"]), (b"{}", ["version: missing"]),
                               (b'{"version":7}', ["version", "7 is not in 1..1"]),
                               (b'{"version":1,"plain":true,"x":1}', ["x: unknown key"])):
            path = self.file("plans.json", content)
            code, text = self.start(self.lab.job("planned", train__plans=path, **bf16))
            self.assertEqual(code, FAILED, text)
            for word in ["train.plans", path] + words:
                self.assertIn(word, text)
        path = self.file("plans.json", b'{"plain":true,"version":1}')
        self.assertEqual(self.start(self.lab.job("planned", train__plans=path, **bf16))[0], 0)

    def test_files_that_were_not_fetched(self):
        path = self.file("empty.npy", LFS)
        self.refused(self.job(data__empty_text=path), path, "a pointer of Git LFS")
        path = self.file("config.json", LFS)
        self.refused(self.job(model__config=path), path, "a pointer of Git LFS")

    def test_configs_of_others(self):
        for changes, words in (({"addition_embed_type": "text_time", "upcast_attention": None}, ["this is SDXL's U-Net"]),
                               ({"_class_name": "SD3Transformer2DModel"}, ["Stable Diffusion 3's transformer"]),
                               ({"_class_name": "StableDiffusionPipeline"}, ["a pipeline's", "folder unet"]),
                               ({"_class_name": "Novel2DModel"}, ["Novel2DModel is not UNet2DConditionModel"])):
            path = self.lab.write("unets/family.json", json.dumps(dict(UNET, **changes)))
            self.refused(self.job(model__config=path), path, *words)

    def test_a_store_that_does_not_answer(self):
        """It may answer the ranks: that is a note, and it does not take long."""
        deaf = socket.socket()
        self.addCleanup(deaf.close)
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(64)
        manifest = "s3://away/%s/manifest.json" % os.path.basename(os.path.dirname(self.manifest))
        away = {"AWS_ENDPOINT_URL": "http://127.0.0.1:%d" % deaf.getsockname()[1], "AWS_ACCESS_KEY_ID": "a",
                "AWS_SECRET_ACCESS_KEY": "b", "SDTRAIN_S3_DEADLINE_SEC": "2"}
        for job, arguments, key in ((self.job(model__init="s3://away/w.safetensors"), [], "bad.json: model.init"),
                                    (self.lab.job("next"), ["--resume", manifest], "--resume: manifest")):
            before = time.monotonic()
            code, text = self.start(job, *arguments, **away)
            self.assertEqual(code, 0, text)
            self.assertIn("note: ", text)
            self.assertIn(key + " was not looked at, its store does not answer here; the ranks will look", text)
            self.assertIn("would be submitted", text)
            self.assertLess(time.monotonic() - before, 30)


class Models(EncodeCase):
    """A model's folder that sdprep encode would refuse is refused by sdprep check before it reads a picture."""

    def refused(self, name, part, content, *words):
        model = copy_model(self.lab.path("model-" + name))
        if content is None:
            os.remove(os.path.join(model, part))
        else:
            with open(os.path.join(model, part), "wb") as file:
                file.write(content)
        recipe = self.write_recipe(name, model=model)
        out = self.lab.path("out-" + name)
        for command in (["check"], ["encode", "--out", out]):
            code, text = self.lab.run(SDPREP, *command, "--recipe", recipe, "--in", self.lab.path("raw"))
            with self.subTest(name, verb=command[0]):
                self.assertEqual(code, FAILED, text)
                for word in words:
                    self.assertIn(word, text)
                self.assertNotIn("units:", text, "pictures were read")
        self.assertFalse(os.path.exists(out))

    def test_folders(self):
        vae, text = "vae/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors"
        of_vae, of_text = (read_weights(os.path.join(MODEL, part)) for part in (vae, text))
        self.refused("lfs", text, LFS, text, "a pointer of Git LFS", "git lfs pull")
        self.refused("pickle", vae, b"PK\3\4" + b"\0" * 200, vae, "torch.save() writes; convert it to safetensors")
        self.refused("missing", text, None, "text_encoder: there is neither model.safetensors nor")
        self.refused("exchanged", text, weights_file(of_vae), text, "this is a VAE (it has a tensor encoder.down_blocks")
        self.refused("wrapped", vae, weights_file({"module." + name: t for name, t in of_vae.items()}), 'begin with "module."')
        self.refused("less", text, weights_file(dict(list(of_text.items())[1:])), "tensor ", " is missing")
        shape = of_text["text_model.final_layer_norm.bias"][1]
        wide = ("F64", shape, b"\0" * (8 * shape[0]))
        self.refused("wide", text, weights_file(dict(of_text, **{"text_model.final_layer_norm.bias": wide})),
                     "tensor text_model.final_layer_norm.bias is F64; convert it")
        self.refused("config", "vae/config.json", LFS, "vae/config.json", "a pointer of Git LFS")
        self.refused("tokens", "tokenizer/merges.txt", LFS, "merges.txt")
        code, text = self.lab.run(SDPREP, "check", "--recipe", self.recipe, "--in", self.lab.path("raw"))
        self.assertEqual(code, 0, text)

    def test_a_model_that_is_away(self):
        """It is looked at later: pictures and captions can be checked without it."""
        deaf = socket.socket()
        self.addCleanup(deaf.close)
        deaf.bind(("127.0.0.1", 0))
        self.lab.environment.update(AWS_ENDPOINT_URL="http://127.0.0.1:%d" % deaf.getsockname()[1], AWS_ACCESS_KEY_ID="a",
                                    AWS_SECRET_ACCESS_KEY="b", SDTRAIN_S3_DEADLINE_SEC="1")
        code, text = self.lab.run(SDPREP, "check", "--recipe", self.write_recipe("away", model="s3://away/model"), "--in",
                                  self.lab.path("raw"))
        self.assertEqual(code, 0, text)
        self.assertIn("the model was not looked at, its store does not answer", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
