# SPDX-License-Identifier: Apache-2.0
"""What the tests of `sdprep encode` share: pictures in tars, a tiny model, and the dataset that an undisturbed run makes of them."""
import io
import json
import os
import random
import shutil
import struct
import subprocess
import tarfile
import zlib

from lab import BIN, SOURCE, LabCase

SDPREP = os.path.join(BIN, "sdprep")
MODEL = os.path.join(SOURCE, "tests/models/tiny-encoders")


def copy_model(folder, **changes):
    """The model's folder with other values in its configs: copy_model("x", vae={"latent_channels": 8})."""
    shutil.copytree(MODEL, folder)
    for part, values in changes.items():
        path = os.path.join(folder, part, "config.json")
        with open(path) as file:
            config = dict(json.load(file), **values)
        with open(path, "w") as file:
            json.dump(config, file)
    return folder


def png(rng, width, height):
    """A picture of a few random waves, as a PNG."""
    kx, ky, phase = (rng.uniform(0.5, 6) for _ in range(3))
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            for c in range(3):
                rows.append(int(x * kx * (c + 1) + y * ky + 40 * phase + rng.random() * 30) % 256)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(bytes(rows), 1)) + chunk(b"IEND", b""))


def write_tar(path, members, format=tarfile.USTAR_FORMAT):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def tree(folder):
    """Every file below it, with its bytes, but what a put that was cut off leaves for an hour."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            if name.startswith(".put-"):
                continue
            path = os.path.join(where, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def samples(folder):
    """[{column: payload}] of an MDS dataset, by the format's description."""
    found = []
    with open(os.path.join(folder, "index.json")) as file:
        index = json.load(file)
    for shard in index["shards"]:
        with open(os.path.join(folder, shard["raw_data"]["basename"]), "rb") as file:
            data = file.read()
        assert len(data) == shard["raw_data"]["bytes"]
        n = struct.unpack_from("<I", data)[0]
        assert n == shard["samples"]
        offsets = struct.unpack_from("<%dI" % (n + 1), data, 4)
        for at in offsets[:n]:
            sizes = []
            for size in shard["column_sizes"]:
                if size is None:
                    size = struct.unpack_from("<I", data, at)[0]
                    at += 4
                sizes.append(size)
            row = {}
            for name, size in zip(shard["column_names"], sizes):
                row[name] = data[at:at + size]
                at += size
            found.append(row)
    return found


def rejects(folder):
    """[(key, reason)] in the order of units."""
    found = []
    where = os.path.join(folder, "rejects")
    for name in sorted(os.listdir(where)) if os.path.isdir(where) else []:
        with open(os.path.join(where, name)) as file:
            found += [(row["key"], row["reason"]) for row in map(json.loads, file)]
    return found


class EncodeCase(LabCase):
    """34 samples in three tars, two of them broken; parts of 5."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = random.Random(3)
        cls.pictures = [png(rng, rng.randint(20, 70), rng.randint(20, 70)) for _ in range(34)]
        for tar, (first, last) in enumerate(((0, 13), (13, 14), (14, 34))):
            members = []
            for i in range(first, last):
                picture = b"not a picture" if i == 7 else cls.pictures[i]
                members += [("%09d.png" % i, picture)]
                members += [("%09d.txt" % i, b"a caption, number %d" % i)] if i != 20 else []
                members += [("%09d.json" % i, json.dumps({"width": i, "score": i / 2}).encode())]
            write_tar(cls.lab.path("raw", "%05d.tar" % tar), members)
        cls.recipe = cls.write_recipe("recipe")
        cls.out = cls.lab.path("reference")
        code, text = cls.encode(cls.recipe, cls.out)
        assert code == 0, text
        cls.reference = tree(cls.out)

    @classmethod
    def write_recipe(cls, name, **changes):
        recipe = {"model": MODEL, "side": 64, "shard_samples": 5, "batch": 4, "threads": 1}
        recipe.update(changes)
        return cls.lab.write("%s.json" % name, json.dumps(recipe))

    @classmethod
    def encode(cls, recipe, out, *options, source=None, fault=None):
        return cls.lab.run(SDPREP, "encode", "--recipe", recipe, "--in", source or cls.lab.path("raw"), "--out", out,
                           *options, fault=fault)

    def start(self, out, fault=None, *options, source=None, before=()):
        """A life that goes on while the test does."""
        command = [*before, SDPREP, "encode", "--recipe", self.recipe, "--in", source or self.lab.path("raw"), "--out", out, *options]
        life = subprocess.Popen(command, env=dict(self.lab.environment, **({"SDTRAIN_FAULT": fault} if fault else {})),
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(life.stdout.close)
        self.addCleanup(life.kill)
        return life

    def end(self, life):
        """(exit code, what it said)"""
        return (life.wait(timeout=300), life.stdout.read())

    def check(self, out, what):
        found = tree(out)
        self.assertEqual(sorted(found), sorted(self.reference), what)
        for name in found:
            self.assertEqual(found[name], self.reference[name], "%s: %s" % (what, name))
