#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The weights of one checkpoint as they lie: diffusers loads them, every parameter, with equal bits.

    load_weights.py CHECKPOINT/unet

Reads the files a second time by the safetensors format's description, a tensor at a time."""
import json
import pathlib
import struct
import sys

import numpy as np
from diffusers import UNet2DConditionModel


def tensors(path):
    """(name, values) of one file."""
    with open(path, "rb") as file:
        (n,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(n))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            file.seek(8 + n + begin)
            yield name, np.frombuffer(file.read(end - begin), dtype="<u4")


def main():
    folder = pathlib.Path(sys.argv[1])
    model, info = UNet2DConditionModel.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    bad = {key: value for key, value in info.items() if value}
    if bad:
        sys.exit(f"{folder}: {bad}")
    loaded, n_elements = dict(model.named_parameters()), 0
    for path in sorted(folder.glob("*.safetensors")):
        for name, ours in tensors(path):
            theirs = loaded.pop(name).detach().numpy().ravel().view(np.uint32)
            if not np.array_equal(ours, theirs):
                sys.exit(f"{path}: {name} differs")
            n_elements += ours.size
    if loaded:
        sys.exit(f"{folder}: not ours: {sorted(loaded)}")
    print(f"{folder}: {n_elements} elements are equal")


if __name__ == "__main__":
    main()
