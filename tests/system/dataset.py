# SPDX-License-Identifier: Apache-2.0
"""Small MDS datasets for tests, written here from the format's description (data/mds/mds.h)."""
import hashlib
import json
import math
import os
import random
import struct

LATENTS = (4, 16, 16)
SMALL = (4, 8, 8)  # a step on them takes half the time
TEXT = (77, 32)


def _columns(latents, text):
    return [("caption", "str", None),
            ("latents", "ndarray:float16:%d,%d,%d" % latents, 2 * math.prod(latents)),
            ("text", "ndarray:float16:%d,%d" % text, 2 * math.prod(text))]


def _halves(rng, n):
    return struct.pack("<%de" % n, *(rng.gauss(0, 1) for _ in range(n)))


def _sample(rng, number, latents, text, halves):
    caption = b"picture %d" % number
    return (struct.pack("<I", len(caption)) + caption + halves(rng, math.prod(latents)) +
            halves(rng, math.prod(text)))


def _shard(samples, config):
    text = json.dumps(config, sort_keys=True).encode()
    at = 4 + 4 * (len(samples) + 1) + len(text)
    offsets = [at]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    return struct.pack("<%dI" % (len(samples) + 2), len(samples), *offsets) + text + b"".join(samples)


def write(folder, n_samples, seed, per_shard=20, latents=LATENTS, text=TEXT, halves=_halves):
    """Shards, index.json with sha256 hashes, and empty.npy, the embedding of the empty caption. halves(rng, n): n values as bytes."""
    rng = random.Random(seed)
    os.makedirs(folder)
    columns = _columns(latents, text)
    config = {"column_encodings": [c[1] for c in columns], "column_names": [c[0] for c in columns],
              "column_sizes": [c[2] for c in columns], "compression": None, "format": "mds",
              "hashes": ["sha256"], "size_limit": 1 << 26, "version": 2}
    shards = []
    for first in range(0, n_samples, per_shard):
        numbers = range(first, min(first + per_shard, n_samples))
        data = _shard([_sample(rng, n, latents, text, halves) for n in numbers], config)
        name = "shard.%05d.mds" % len(shards)
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
        shards.append(dict(config, samples=len(numbers), zip_data=None,
                           raw_data={"basename": name, "bytes": len(data),
                                     "hashes": {"sha256": hashlib.sha256(data).hexdigest()}}))
    with open(os.path.join(folder, "index.json"), "w") as file:
        json.dump({"shards": shards, "version": 2}, file, sort_keys=True)

    header = "{'descr': '<f2', 'fortran_order': False, 'shape': (%d, %d), }" % text
    header += " " * (117 - len(header)) + "\n"
    with open(os.path.join(folder, "empty.npy"), "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + halves(rng, math.prod(text)))
