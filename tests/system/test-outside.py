#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/reference/order.md is enough to verify a job: outside.py, which was written from it, says what the programs say, bit for bit."""
import json
import math
import os
import struct
import unittest

import outside
from lab import BIN, SOURCE, LabCase


def vectors():
    """[(words before the "=", words after it)] of the page's last block."""
    with open(os.path.join(SOURCE, "docs/reference/order.md")) as file:
        block = file.read().split("```text")[-1].partition("```")[0]
    return [tuple(side.split() for side in line.split("=")) for line in block.strip().splitlines()]


def hexadecimal(words):
    return [int(word, 16) for word in words]


def compute(name, words):
    """What outside.py says of a vector, in the page's words."""
    if name == "key":
        return ["%016x" % outside.hash64(words[0].replace("_", " "), int(words[1]))]
    if name == "philox":
        return ["%08x" % word for word in outside.philox(*hexadecimal(words))]
    if name == "timestep":
        return [str(outside.timestep(17, int(words[0]), int(words[1])))]
    if name == "dropped":
        return [str(i) for i in range(int(words[1])) if outside.caption_is_dropped(17, i, float(words[0]))]
    if name == "normal":
        return [x.hex() for x in outside.normal_pair(*hexadecimal(words))]
    if name == "noise":
        return [x.hex() for x in outside.noise(17, int(words[0]), 5)]
    if name == "weight":
        tensors = [("a.weight", [1]), ("a.bias", [1]), ("b.weight", [1]), ("c.weight", [2, 4, 3, 3])]
        return [dict(outside.initial_weights(17, tensors))["c.weight"][int(words[0])].hex()]
    if name == "mix":
        return ["%016x" % outside.mix(int(words[0], 16))]
    if name == "derive":
        return ["%016x" % outside.derive(int(words[0], 16), int(words[1]))]
    if name == "permute":
        return [str(outside.permute(int(words[0], 16), int(words[1]), x)) for x in range(min(int(words[1]), 8))]
    if name == "order":
        order = outside.Order([(1000000000, 404, 0.7), (8121, 128, 0.2), (65537, 512, 0.1)], 17, 262144)
        return [str(x) for x in order.at(int(words[0]))]
    raise AssertionError("order.md: a vector of %s" % name)


class Outside(LabCase):
    def test_vectors(self):
        seen = set()
        for (name, *words), expected in vectors():
            seen.add(name)
            self.assertEqual(compute(name, words), expected, "%s %s" % (name, words))
        self.assertEqual(len(seen), 11, seen)

    def test_order_and_draws(self):
        """Three streams, windows and units that do not fit the samples, seeds small and large."""
        streams = [(self.lab.path("data"), 96, 3.0), (self.lab.data("small", 11, seed=2), 11, 1.0),
                   (self.lab.data("other", 53, seed=3), 53, 1.7)]
        rows = 0
        for seed, window in ((17, 32), (0, 1), (2 ** 62 + 5, 1000)):
            job = self.lab.job("order-%d" % window, train__seed=seed, train__caption_drop=0.3, train__global_batch=8,
                               train__grain=2, data__shuffle_window=window,
                               data__streams=[{"uri": uri, "proportion": q} for uri, _, q in streams])
            # dataset.py writes 20 samples a shard.
            order = outside.Order([(n, -(-n // -(-n // 20)), q) for _, n, q in streams], seed, window)
            for step in (1, 2, 3, 40, 1000):
                for row in self.lab.order(job, step, world=3, noise=7):
                    p = int(row["position"])
                    self.assertEqual((int(row["stream"]), int(row["pass"]), int(row["sample"])), order.at(p))
                    self.assertEqual(int(row["timestep"]), outside.timestep(seed, p, 1000))
                    self.assertEqual(row["caption"] == "dropped", outside.caption_is_dropped(seed, p, 0.3))
                    self.assertEqual([float.fromhex(x) for x in row["noise"].split(",")], outside.noise(seed, p, 7))
                    grain = p % 8 // 2
                    self.assertEqual(int(row["grain"]), grain)
                    self.assertTrue(int(row["rank"]) * 4 // 3 <= grain < (int(row["rank"]) + 1) * 4 // 3)
                    rows += 1
        self.assertEqual(rows, 3 * 5 * 8)

    def test_noise_of_a_whole_sample(self):
        job = self.lab.job("noise", train__seed=99)
        row = self.lab.order(job, 1, noise=1 << 20)[0]
        self.assertEqual([float.fromhex(x) for x in row["noise"].split(",")], outside.noise(99, 0, 4 * 16 * 16))

    def test_initial_weights(self):
        """Of the checkpoint of step 0, every tensor."""
        job = self.lab.job("weights", train__steps=1, train__seed=5)
        code, text = self.lab.run(os.path.join(BIN, "sdtrainer"), "run", "--job", self.lab.job_file(job))
        self.assertEqual(code, 0, text)
        manifest, parsed = self.lab.manifests(job)[0]
        self.assertEqual(parsed["step"], 0)
        with open(os.path.join(os.path.dirname(manifest), "unet/diffusion_pytorch_model.safetensors"), "rb") as file:
            data = file.read()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:begin])
        header.pop("__metadata__")
        tensors = sorted(((name, t["shape"], t["data_offsets"][0]) for name, t in header.items()), key=lambda t: t[2])
        expected = outside.initial_weights(5, [(name, shape) for name, shape, _ in tensors])
        for (name, shape, offset), (_, values) in zip(tensors, expected):
            n = math.prod(shape)
            found = data[begin + offset:begin + offset + 4 * n]
            self.assertTrue(found == struct.pack("<%df" % n, *values), name)
        self.assertGreater(len(tensors), 50)


if __name__ == "__main__":
    unittest.main(verbosity=2)
