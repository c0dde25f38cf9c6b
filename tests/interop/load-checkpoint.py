#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint as it lies is a model that diffusers loads, with the same numbers.

    load_checkpoint.py [--bin build/dev/bin]

Wants torch and diffusers (tests/golden/requirements.txt). For each config: make-checkpoint writes a
checkpoint and the same numbers bare; UNet2DConditionModel.from_pretrained loads unet/ and
unet_ema/, once from one file and once from several; every parameter must be there, with equal bits.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from diffusers import UNet2DConditionModel

COMMON = dict(_class_name="UNet2DConditionModel", sample_size=8, in_channels=4, out_channels=4,
              cross_attention_dim=12, norm_num_groups=4, mid_block_type="UNetMidBlock2DCrossAttn")
CONFIGS = {
    "two levels": dict(COMMON, block_out_channels=[8, 16], layers_per_block=1,
                       down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
                       up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"],
                       attention_head_dim=[2, 4], use_linear_projection=True),
    "three levels": dict(COMMON, block_out_channels=[8, 12, 12], layers_per_block=2,
                         down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
                         up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
                         attention_head_dim=2, use_linear_projection=False),
}
FILE_BYTES = {"one file": 1 << 30, "several files": 100_000}


def names_and_sizes(folder):
    for line in (folder / "names.txt").read_text().splitlines():
        name, n_elements = line.split()
        yield name, int(n_elements)


def compare(folder, checkpoint, part):
    """Every parameter of the loaded model against the bare numbers; returns how many there are."""
    model, info = UNet2DConditionModel.from_pretrained(
        checkpoint / part, local_files_only=True, low_cpu_mem_usage=False, output_loading_info=True)
    bad = {key: value for key, value in info.items() if value}
    if bad:
        sys.exit(f"{checkpoint / part}: {bad}")
    loaded = {name: p.detach().numpy().ravel() for name, p in model.named_parameters()}
    flat = np.fromfile(folder / f"{part}.f32", dtype="<f4")
    at = 0
    for name, n_elements in names_and_sizes(folder):
        ours, theirs = flat[at:at + n_elements], loaded.pop(name)
        if ours.view(np.uint32).tolist() != theirs.view(np.uint32).tolist():
            sys.exit(f"{checkpoint / part}: {name} differs")
        at += n_elements
    if loaded or at != flat.size:
        sys.exit(f"{checkpoint / part}: {at} of {flat.size} elements; not ours: {sorted(loaded)}")
    return at


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--bin", default="build/dev/bin", type=pathlib.Path)
    program = options.parse_args().bin / "make-checkpoint"
    for title, config in CONFIGS.items():
        for files, file_bytes in FILE_BYTES.items():
            with tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary)
                (folder / "config.json").write_text(json.dumps(config))
                subprocess.run([program, folder / "config.json", folder, str(file_bytes)], check=True)
                (checkpoint,) = folder.glob("step-*")
                n_files = len(list(checkpoint.glob("unet/*.safetensors")))
                if (n_files == 1) != (files == "one file"):
                    sys.exit(f"{title}: {n_files} weight files, wanted {files}")
                for part in ("unet", "unet_ema"):
                    n = compare(folder, checkpoint, part)
                    print(f"{title}, {part}, {n_files} file(s): {n} elements are equal")


if __name__ == "__main__":
    main()
