#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of a job through a model folder: the same seed gives the same bytes, captions decide, what does not fit is refused."""
import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest
import zlib

import dataset
from encoded import MODEL, SDPREP, copy_model, png, write_tar
from lab import BIN, UNET, LabCase, process_state, until

SDTRAINER = os.path.join(BIN, "sdtrainer")
SIDE = 64
GAP = 4


def hash_of(path):
    """A picture's bytes are nothing to print."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def paeth(a, b, c):
    return min((a, b, c), key=lambda x: abs(a + b - c - x))


def pixels_of(path):
    """Width, height and the RGB rows of a PNG of 8 bits."""
    with open(path, "rb") as file:
        data = file.read()
    at, packed = 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        packed += body if kind == b"IDAT" else b""
        at += 12 + n
    raw, rows, before = zlib.decompress(packed), [], bytes(3 * width)
    for y in range(height):
        row = bytearray(raw[y * (3 * width + 1):(y + 1) * (3 * width + 1)])
        kind = row.pop(0)
        for x, value in enumerate(row):
            left, upper_left = (row[x - 3], before[x - 3]) if x >= 3 else (0, 0)
            row[x] = (value + (0, left, before[x], (left + before[x]) // 2, paeth(left, before[x], upper_left))[kind]) & 255
        rows.append(before := bytes(row))
    return width, height, rows


def cells(path, columns, n):
    """The hashes of a grid's pictures."""
    width, _, rows = pixels_of(path)
    assert width == columns * (SIDE + GAP) + GAP
    found = []
    for i in range(n):
        x, y = GAP + i % columns * (SIDE + GAP), GAP + i // columns * (SIDE + GAP)
        found.append(hashlib.sha256(b"".join(row[3 * x:3 * (x + SIDE)] for row in rows[y:y + SIDE])).hexdigest())
    return found


def notes_of(path):
    """What the grid's chunk "sdtrain" says."""
    with open(path, "rb") as file:
        data = file.read()
    at = 8
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        assert struct.unpack(">I", data[at + 8 + n:at + 12 + n])[0] == zlib.crc32(kind + body)
        if kind == b"tEXt" and body.startswith(b"sdtrain\0"):
            return json.loads(body[8:])
        at += 12 + n
    raise AssertionError(path + " has no notes")


class Sample(LabCase):
    n_samples = 4

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dataset.write(cls.lab.path("latents"), 20, 1, latents=(4, SIDE // 8, SIDE // 8), text=(77, 64))
        cls.lab.write("wide.json", json.dumps(dict(UNET, cross_attention_dim=64)))
        cls.job = cls.make_job("drawn")
        code, text = cls.lab.train(cls.job)
        assert code == 0, text
        # It stops at once, and is let go on when others have taken as long as it takes until progress is told.
        cls.slow_began = time.monotonic()
        cls.slow = subprocess.Popen(cls.command(cls.job, "slow.png", "--model", MODEL, "--samples", "2"), text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    env=dict(cls.lab.environment, SDTRAIN_FAULT="sample.step=stop@2"))

    @classmethod
    def make_job(cls, name, **changes):
        changes = dict(dict(model__config=cls.lab.path("wide.json"), train__steps=4, train__ema={"start_step": 2},
                            checkpoint__every_steps=2), **changes)
        return cls.lab.job(name, data=cls.lab.path("latents"), **changes)

    @classmethod
    def command(cls, job, out, *options):
        return [SDTRAINER, "sample", "--job", cls.lab.job_file(job), "--out", cls.lab.path(out), "--steps", "4", *options]

    def draw(self, out, *options, job=None):
        code, text = self.lab.run(*self.command(job or self.job, out, *options))
        self.assertEqual(code, 0, text)
        return hash_of(self.lab.path(out))

    def refused(self, *words, options=(), job=None):
        code, text = self.lab.run(*self.command(job or self.job, "refused.png", "--samples", "1", *options))
        self.assertNotEqual(code, 0, text)
        self.assertGreater(code, 0, text)
        for word in words:
            self.assertIn(word, text)
        self.assertFalse(os.path.exists(self.lab.path("refused.png")))

    def test_same_seed_same_bytes(self):
        """Neither threads nor how many are drawn at once change a byte; a seed changes all."""
        wanted = self.draw("one.png", "--model", MODEL, "--samples", "5", "--seed", "7")
        for threads in (2, 3, 4):
            job = self.make_job("drawn", train__threads=threads)
            self.assertEqual(self.draw("threads.png", "--model", MODEL, "--samples", "5", "--seed", "7", job=job), wanted)
        all_five = cells(self.lab.path("one.png"), 3, 5)
        self.assertEqual(len(set(all_five)), 5)
        self.draw("first.png", "--model", MODEL, "--samples", "1", "--seed", "7")
        self.assertEqual(cells(self.lab.path("first.png"), 1, 1), all_five[:1])
        self.draw("seed.png", "--model", MODEL, "--samples", "5", "--seed", "8")
        self.assertEqual(set(cells(self.lab.path("seed.png"), 3, 5)) & set(all_five), set())
        # Without a model the codec shows the same latents otherwise.
        self.draw("codec.png", "--samples", "5", "--seed", "7")
        self.assertEqual(set(cells(self.lab.path("codec.png"), 3, 5)) & set(all_five), set())

    def test_the_codec_draws_as_ever(self):
        """Of the version that had no --model."""
        for options, wanted in (([], "d1324de4398a48d381dbb47ec7b8943b"),
                                (["--caption", "a cat"], "4ed534eca48fc5f0edccef97611ca4bb")):
            self.draw("ever.png", "--samples", "5", "--seed", "7", *options)
            rows = pixels_of(self.lab.path("ever.png"))[2]
            self.assertEqual(hashlib.sha256(b"".join(rows)).hexdigest()[:32], wanted, options)

    def test_a_grid_says_what_it_shows(self):
        """And the data's own pictures, of the same samples and decoder, do not depend on what is drawn."""
        self.draw("own.png", "--samples", "3", "--caption", "a cat", "--caption", "caf\u00e9 \x1b[2J", "--seed", "9",
                  "--pictures", self.lab.path("real.png"))
        drawn, real = (notes_of(self.lab.path(name)) for name in ("own.png", "real.png"))
        self.assertEqual(drawn, {"job": "drawn", "of": "network", "step": 4, "weights": "ema", "seed": "9",
                                 "captions": ["a cat", "caf\u00e9 ?[2J", "a cat"]})
        self.assertEqual((real["job"], real["of"], len(real["captions"])), ("drawn", "data", 3))
        self.assertNotIn("seed", real)
        of_data = cells(self.lab.path("real.png"), 2, 3)
        self.assertEqual(len(set(of_data)), 3)
        self.draw("own.png", "--samples", "3", "--seed", "10", "--pictures", self.lab.path("again.png"))
        self.assertEqual(cells(self.lab.path("again.png"), 2, 3), of_data)
        self.assertEqual(set(cells(self.lab.path("own.png"), 2, 3)) & set(of_data), set())
        self.assertEqual(notes_of(self.lab.path("own.png"))["captions"], notes_of(self.lab.path("again.png"))["captions"])
        self.refused("--pictures", "the same file", options=["--pictures", self.lab.path("refused.png")])
        self.refused("--pictures: cannot write", "No such file", options=["--pictures", self.lab.path("no/real.png")])

    def test_an_evaluation_draws_the_same(self):
        """sdtrainer evaluate draws as sdtrainer sample does: through the codec or a model, by captions of data or file."""
        manifest = self.lab.manifests(self.job)[-1][0]
        grid = {"streams": self.job["data"]["streams"], "uri": self.lab.path("grids"), "samples": 3, "steps": 4, "seed": 7,
                "empty_text": self.job["data"]["empty_text"]}
        for more, options in (({}, []), ({"threads": 2, "guidance": 1.5}, ["--guidance", "1.5"]),
                              ({"model": MODEL}, ["--model", MODEL]), ({"captions": ["a cat", "a fox"]}, ["--caption", "a cat", "--caption", "a fox"]),
                              ({"model": MODEL, "captions": ["a cat"], "empty_text": None}, ["--model", MODEL, "--caption", "a cat"])):
            wanted = self.draw("wanted.png", "--samples", "3", "--seed", "7", "--from", manifest, *options)
            evaluation = {"name": "grids", "kind": "eval", "of": {"job": "drawn"}, "world": {"min": 1, "max": 1}, "grid": {**grid, **more},
                          "checkpoint": {"uri": self.job["checkpoint"]["uri"]}}
            code, text = self.lab.run(SDTRAINER, "evaluate", "--job", self.lab.write("grids.json", json.dumps(evaluation)),
                                      "--from", manifest, errors=subprocess.DEVNULL)
            self.assertEqual(code, 0, text)
            self.assertRegex(text, r"\Agrid %s/grids-step-0000000004-[0-9a-f]{8}\.png\n\Z" % re.escape(grid["uri"]))
            self.assertEqual(hash_of(text.split()[1]), wanted, options)
        self.assertEqual(len(os.listdir(grid["uri"])), 5)

    def test_every_stream_has_its_share(self):
        """Of the data's own pictures, and of the captions that are drawn; each stream from its first sample on."""
        dataset.write(self.lab.path("other"), 20, 2, latents=(4, SIDE // 8, SIDE // 8), text=(77, 64))
        streams = [{"uri": self.lab.path("latents"), "proportion": 3}, {"uri": self.lab.path("other"), "proportion": 1}]
        found = []
        for which in [streams[:1], streams[1:], streams]:
            job = dict(self.job, data=dict(self.job["data"], streams=which))
            self.draw("drawn.png", "--samples", "8", "--pictures", self.lab.path("real.png"), job=job)
            found.append(cells(self.lab.path("real.png"), 3, 8))
        first, other, both = found
        self.assertEqual([cell for cell in both if cell in first], first[:6])
        self.assertEqual([cell for cell in both if cell in other], other[:2])
        captions = notes_of(self.lab.path("real.png"))["captions"]
        self.assertEqual(captions, ["picture %d" % (first.index(c) if c in first else other.index(c)) for c in both])
        self.assertEqual(notes_of(self.lab.path("drawn.png"))["captions"], captions)

    def test_captions_take_turns(self):
        options = ["--model", MODEL, "--samples", "3"]
        self.draw("a.png", *options, "--caption", "a cat")
        self.draw("b.png", *options, "--caption", "a dog")
        self.draw("ab.png", *options, "--caption", "a cat", "--caption", "a dog")
        a, b, ab = (cells(self.lab.path(name), 2, 3) for name in ("a.png", "b.png", "ab.png"))
        self.assertNotEqual(a[0], b[0])
        self.assertEqual(ab, [a[0], b[1], a[2]])
        # As many as there are captions, and more than the network or the text encoder takes at once.
        many = [word for i in range(17) for word in ("--caption", "a cat" if i == 16 else "number %d" % i)]
        self.draw("many.png", "--model", MODEL, *many)
        last = cells(self.lab.path("many.png"), 5, 17)[16]
        self.draw("seventeen.png", "--model", MODEL, "--samples", "17", "--caption", "a cat")
        self.assertEqual(cells(self.lab.path("seventeen.png"), 5, 17)[16], last)
        # Guidance is away from the empty caption, which is therefore the same with any.
        empty = [cells(self.lab.path("empty.png"), 1, 1) for guidance in ("1", "5")
                 if self.draw("empty.png", "--model", MODEL, "--samples", "1", "--caption", "", "--guidance", guidance)]
        self.assertEqual(empty[0], empty[1])
        self.draw("long.png", "--model", MODEL, "--samples", "1", "--caption", "word " * 25000)
        self.refused("caption 2 is not UTF-8", options=["--model", MODEL, "--samples", "2", "--caption", "fine", "--caption",
                                                        b"caf\xe9"])
        self.refused("fewer than the 2 captions", options=["--caption", "a", "--caption", "b"])
        # Captions go to the codec's stand-in as before, and take turns there, too.
        self.draw("hashed.png", "--samples", "3", "--caption", "a cat", "--caption", "a dog")
        self.assertEqual(len(set(cells(self.lab.path("hashed.png"), 2, 3))), 3)

    def test_models_that_do_not_fit(self):
        model = copy_model(self.lab.path("channels"), vae={"latent_channels": 8})
        self.refused(model + "/vae/config.json", "latent_channels is 8", "wide.json", "4 channels", options=["--model", model])
        model = copy_model(self.lab.path("width"), text_encoder={"hidden_size": 128})
        self.refused(model + "/text_encoder/config.json", "hidden_size is 128", "wide.json", "width 64",
                     options=["--model", model, "--caption", "c"])
        self.draw("width.png", "--model", model, "--samples", "1")  # whose text encoder nobody needs
        model = copy_model(self.lab.path("tokens"), text_encoder={"max_position_embeddings": 64})
        self.refused("max_position_embeddings is 64", "77 tokens", options=["--model", model, "--caption", "c"])
        job = self.make_job("drawn", data__latent_scale=0.8)
        self.refused("scaling_factor is 6.994", "latents times 0.8", options=["--model", MODEL], job=job)

    def test_where_nothing_can_be_written(self):
        """It is refused before hours of drawing, not after them."""
        os.makedirs(self.lab.path("folder"))
        self.lab.write("file", "mine")
        for out, why in (("no/such/grid.png", "No such file"), ("folder", "Is a directory"), ("file/grid.png", "Not a directory")):
            code, text = self.lab.run(*self.command(self.job, out, "--samples", "1"))
            self.assertEqual(code, 78, text)
            self.assertRegex(text, r"--out: cannot write \S+/%s: %s" % (out, why))
            self.assertNotIn("sampling with", text)
        code, text = self.lab.run(*self.command(self.job, "x", "--samples", "1", "--out", ""))  # of a variable that is not set
        self.assertEqual(code, 78, text)

    def test_models_that_are_broken(self):
        os.symlink("loop", self.lab.path("loop"))
        self.refused("/loop/vae/config.json", "symbolic links", options=["--model", self.lab.path("loop")])
        self.refused("/nowhere/vae/config.json", options=["--model", self.lab.path("nowhere")])
        self.refused("/latents/vae/config.json", options=["--model", self.lab.path("latents")])
        self.refused("vae/config.json", options=["--model", "/dev/null"])
        for part, name in (("vae", "diffusion_pytorch_model.safetensors"), ("text_encoder", "model.safetensors")):
            model = copy_model(self.lab.path("cut-" + part))
            path = os.path.join(model, part, name)
            os.truncate(path, os.path.getsize(path) - 1000)
            self.refused(path, options=["--model", model, "--caption", "c"])
            os.truncate(path, 5)
            self.refused(path, options=["--model", model, "--caption", "c"])
        model = copy_model(self.lab.path("no-merges"))
        os.remove(model + "/tokenizer/merges.txt")
        self.refused("tokenizer", "merges.txt", options=["--model", model, "--caption", "c"])

    def test_weights_that_made_the_data(self):
        """encoder.json names them: others are warned about, another scale is refused."""
        rng = random.Random(3)
        members = [("%d.%s" % (i, ending), body) for i in range(4) for ending, body in (("png", png(rng, 70, 80)), ("txt", b"c"))]
        write_tar(self.lab.path("raw", "0.tar"), members)
        for rules in ("open_clip", "diffusers"):
            recipe = self.lab.write("recipe.json", json.dumps({"model": MODEL, "side": SIDE, "threads": 1, "tokenizer": rules}))
            code, text = self.lab.run(SDPREP, "encode", "--recipe", recipe, "--in", self.lab.path("raw"), "--out",
                                      self.lab.path(rules))
            self.assertEqual(code, 0, text)
        wanted = {}
        for rules in ("open_clip", "diffusers"):
            job = dict(self.job, data={"streams": [{"uri": self.lab.path(rules)}]})
            for options in ([], ["--caption", "wow! a cat"], ["--caption", "a cat"]):
                code, text = self.lab.run(*self.command(job, "facts.png", "--model", MODEL, "--samples", "1", *options))
                self.assertEqual(code, 0, text)
                self.assertNotIn("warning", text)
                wanted[rules, len(options) and options[1]] = hash_of(self.lab.path("facts.png"))
        # "!" is the padding by diffusers' rules, and a word of open_clip's.
        self.assertNotEqual(wanted["open_clip", "wow! a cat"], wanted["diffusers", "wow! a cat"])
        self.assertEqual(wanted["open_clip", "a cat"], wanted["diffusers", "a cat"])
        path = self.lab.path("open_clip", "encoder.json")
        with open(path) as file:
            facts = json.load(file)
        job = dict(self.job, data={"streams": [{"uri": self.lab.path("open_clip")}]})
        for key, options in (("weights", []), ("weights", ["--caption", "a cat"]), ("merges", ["--caption", "a cat"])):
            with open(path, "w") as file:
                json.dump(dict(facts, **{key: "0" * 32}), file)
            code, text = self.lab.run(*self.command(job, "facts.png", "--model", MODEL, "--samples", "1", *options))
            self.assertEqual(code, 0, text)
            self.assertRegex(text, "warning.*other %s .%s. than what made the data by encoder.json .%s" % (key, facts[key], "0" * 32))
        with open(path, "w") as file:
            json.dump(dict(facts, scaling_factor=0.18215), file)
        self.refused("scaling_factor is 6.994", "latents times 0.18215", options=["--model", MODEL], job=job)
        # It is looked for in every stream: a first one that nobody described hides nothing.
        both = dict(job, data={"streams": [{"uri": self.lab.path("latents")}] + job["data"]["streams"]})
        self.refused("scaling_factor is 6.994", "latents times 0.18215", options=["--model", MODEL], job=both)
        # The demo's codec draws nothing of a VAE's latents, and says so; the demo's own data need no model.
        for of, warned in ((job, True), (self.job, False)):
            for options in ([], ["--caption", "a cat"]):
                code, text = self.lab.run(*self.command(of, "facts.png", "--samples", "1", *options))
                self.assertEqual(code, 0, text)
                self.assertEqual(bool(re.search("warning.*were made by a VAE.*without a model", text)), warned, text)
        # A folder with a VAE alone decodes; nobody can compare it.
        model = copy_model(self.lab.path("vae-alone"))
        shutil.rmtree(model + "/text_encoder")
        with open(path, "w") as file:
            json.dump(facts, file)
        code, text = self.lab.run(*self.command(job, "facts.png", "--model", model, "--samples", "1"))
        self.assertEqual(code, 0, text)
        self.assertRegex(text, "warning.*nobody knows whether .*text_encoder/config.json")
        self.assertEqual(hash_of(self.lab.path("facts.png")), wanted["open_clip", 0])

    def test_a_checkpoint_that_is_swept(self):
        """What is removed while it is read has a newer one in its place."""
        job = self.make_job("swept")
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        newest = os.path.dirname(self.lab.manifests(job)[-1][0])
        aside = self.lab.path("aside")
        os.rename(newest, aside)
        drawing = subprocess.Popen(self.command(job, "swept.png", "--model", MODEL, "--samples", "1"), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env=dict(self.lab.environment, SDTRAIN_FAULT="sample.restore=stop@1"))
        try:
            until(lambda: process_state(drawing.pid) == "T", "a verb that reads a checkpoint")
            shutil.rmtree(os.path.dirname(self.lab.manifests(job)[-1][0]))
            os.rename(aside, newest)
        finally:
            os.kill(drawing.pid, signal.SIGCONT)
            text = drawing.communicate(timeout=120)[0]
        self.assertEqual(drawing.returncode, 0, text)
        self.assertIn(os.path.basename(newest) + " is newer", text)
        self.assertIn("EMA weights of step 4", text)
        # Without a newer one the first error stays.
        os.remove(os.path.join(newest, "unet_ema/diffusion_pytorch_model.safetensors"))
        self.refused("unet_ema/diffusion_pytorch_model.safetensors", options=["--model", MODEL], job=job)

    def test_z_progress(self):
        until(lambda: process_state(self.slow.pid) == "T", "a verb that has drawn a step")
        time.sleep(max(0.0, self.slow_began + 10.5 - time.monotonic()))  # its own clock decides
        os.kill(self.slow.pid, signal.SIGCONT)
        text = self.slow.communicate(timeout=120)[0]
        self.assertEqual(self.slow.returncode, 0, text)
        self.assertRegex(text, r"\b2 of 6 steps are done; \d+ s to go")
        self.assertEqual(text.count("to go"), 1, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
