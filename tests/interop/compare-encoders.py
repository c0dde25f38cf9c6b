#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Latents, pictures and texts of the project against diffusers' AutoencoderKL and transformers' CLIPTextModel in float64.

usage: compare-encoders.py --bin FOLDER [--sides 256,512]
First the golden files' model folder (tests/models/tiny-encoders): those libraries must load it and compute what
make-encoders.py wrote down by itself. Then Stable Diffusion 2's own sizes with random weights: one picture of each side
and one caption; and what the decoder makes of random latents. A result is a half, so it may be off by its rounding and
1e-5 of the largest value; a picture's byte by one level. Prints a line each, exits 1 if one is further off. Takes 8 GB of memory and 2 GB in build/.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from diffusers import AutoencoderKL
from diffusers.image_processor import VaeImageProcessor
from safetensors.numpy import load_file
from transformers import CLIPTextModel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ops"))
import torch_encoders  # noqa: E402  (where the models are)

REACH = 1e-5
bad = 0


def say(what, error, reach=REACH):
    global bad
    bad += not error <= reach
    print(f"{'ok ' if error <= reach else 'BAD'} {what}: {error:.2g} (at most {reach:g})", flush=True)


def largest(found, wanted):
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def beyond_rounding(found, wanted):
    """How far halves are from the exact values, less what rounding may do, in parts of the largest value."""
    off = np.abs(found.astype(np.float64) - wanted) - np.abs(wanted) * 2.0**-11 - 2.0**-25
    return float(max(off.max(), 0) / np.abs(wanted).max())


def latents_of(vae, pixels):
    x = torch.from_numpy(pixels.astype(np.float64) / 127.5 - 1).permute(0, 3, 1, 2)
    with torch.inference_mode():
        return (vae.encode(x).latent_dist.mode() * vae.config.scaling_factor).numpy()


def text_of(model, ids):
    with torch.inference_mode():
        return model(torch.from_numpy(ids).long()).last_hidden_state.numpy()


def pictures_of(vae, latents):
    """Bytes by the rule of VaeImageProcessor, which gives pictures to who asks for PIL's."""
    z = torch.from_numpy(latents.astype(np.float64)) / vae.config.scaling_factor
    with torch.inference_mode():
        return VaeImageProcessor().postprocess(vae.decode(z).sample, output_type="pil")


def decoded(bin_folder, model, latents, work):
    (work / "in").write_bytes(latents.astype(np.float16).tobytes())
    n, _, side, _ = latents.shape
    subprocess.run([f"{bin_folder}/bench-encoder", "--model", str(model), "--side", str(8 * side), "--batch", str(n),
                    "--decode", f"{work}/in:{work}/out"], check=True)
    return np.fromfile(work / "out", np.uint8).reshape(n, 8 * side, 8 * side, 3)


def compare_pictures(what, vae, bin_folder, model, latents, work):
    latents = latents.astype(np.float16)
    ours, theirs = decoded(bin_folder, model, latents, work), np.stack([np.asarray(p) for p in pictures_of(vae, latents)])
    off = np.abs(ours.astype(int) - theirs)
    say(f"{what}, levels of a byte", int(off.max()), 1)
    say(f"{what}, part of the bytes that differ", float((off > 0).mean()), 1e-3)


def golden_folder(bin_folder, work):
    folder, golden = ROOT / "tests/models/tiny-encoders", load_file(ROOT / "tests/golden/tiny-encoders.safetensors")
    vae = AutoencoderKL.from_pretrained(folder / "vae").double()
    text = CLIPTextModel.from_pretrained(folder / "text_encoder").double()
    say("tiny-encoders: latents of make-encoders.py", largest(golden["latents"], latents_of(vae, golden["bytes"])), 1e-6)
    say("tiny-encoders: text of make-encoders.py", largest(golden["hidden"], text_of(text, golden["ids"])), 1e-6)
    with torch.inference_mode():
        z = torch.from_numpy(golden["latents"]).double() / vae.config.scaling_factor
        raw = vae.decode(z).sample.permute(0, 2, 3, 1).numpy()
    say("tiny-encoders: pictures of make-encoders.py", largest(golden["decoded"], raw), 1e-6)
    compare_pictures("tiny-encoders: pictures", vae, bin_folder, folder, golden["latents"], work)


def full_size(bin_folder, sides, work):
    vae, text = torch_encoders.vae(), torch_encoders.text_encoder()
    vae.save_pretrained(work / "vae")
    text.save_pretrained(work / "text_encoder")
    vae, text = vae.double(), text.double()
    rng = np.random.default_rng(17)
    for side in sides:
        y, x = np.mgrid[0:side, 0:side, ][..., None] / side
        picture = 127.5 + 90 * np.sin(x * [3, 5, 7] + y * [11, 2, 4]) + rng.normal(0, 12, (side, side, 3))
        pixels = np.clip(np.rint(picture), 0, 255).astype(np.uint8)[None]
        ids = np.zeros((1, 77), np.int32)
        ids[0, :9] = [49406, *rng.integers(0, 49406, 7), 49407]
        (work / "in").write_bytes(pixels.tobytes() + ids.tobytes())
        subprocess.run([f"{bin_folder}/bench-encoder", "--model", str(work), "--side", str(side), "--write",
                        f"{work}/in:{work}/out"], check=True)
        halves = np.fromfile(work / "out", np.float16)
        n = 4 * (side // 8) ** 2
        say(f"sd2, latents of a picture of {side}", beyond_rounding(halves[:n].reshape(1, 4, side // 8, side // 8), latents_of(vae, pixels)))
        compare_pictures(f"sd2, picture of {side}", vae, bin_folder, work, rng.normal(0, 1, (1, 4, side // 8, side // 8)), work)
        if side == sides[0]:
            say("sd2, text of a caption", beyond_rounding(halves[n:].reshape(1, 77, 1024), text_of(text, ids)))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bin", required=True)
    p.add_argument("--sides", type=lambda text: [int(side) for side in text.split(",")], default=[256, 512])
    o = p.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="encoders-", dir=ROOT / "build"))
    try:
        golden_folder(o.bin, work)
        full_size(o.bin, o.sides, work)
    finally:
        shutil.rmtree(work)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
