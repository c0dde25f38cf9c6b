#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pipeline that `sdctl job export` wrote, loaded by diffusers: from the same noise it draws what `sdtrainer sample` draws.

usage: compare-pipeline.py --bin FOLDER
Trains a small job in a cluster on this machine, once for epsilon and once for v, and exports each with the model folder
tests/models/tiny-encoders. Each program has its own noise, so diffusers gets ours. Captions of `sample` are rounded to halves,
as a dataset holds them, so a byte may be off by two levels. Prints a line each, exits 1 if one is further off.
"""
import argparse
import json
import os
import pathlib
import sys

import numpy as np
import torch
from diffusers import StableDiffusionPipeline
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAPTIONS = ["a photo of a cat", "the cat", "two dogs, a hat"]
SIDE, GAP, STEPS, SEED, REACH = 64, 4, 2, 5, 2


def our_noise(outside, key, position):
    """[4][SIDE / 8][SIDE / 8] of nn/ddim.c: rows of pixels of channels, from blocks of four draws."""
    n, found = 4 * (SIDE // 8) ** 2, []
    for block in range(n // 4):
        words = outside.philox(key, position, block)
        found += [*outside.normal_pair(words[0], words[1]), *outside.normal_pair(words[2], words[3])]
    return np.array(found, np.float32).reshape(SIDE // 8, SIDE // 8, 4).transpose(2, 0, 1)


def draw_theirs(folder, outside):
    pipe = StableDiffusionPipeline.from_pretrained(folder, local_files_only=True)
    pipe.set_progress_bar_config(disable=True)
    noise = torch.from_numpy(np.stack([our_noise(outside, SEED, i) for i in range(len(CAPTIONS))]))
    with torch.inference_mode():
        images = pipe(CAPTIONS, latents=noise, height=SIDE, width=SIDE, num_inference_steps=STEPS, guidance_scale=3.0).images
    return np.stack([np.asarray(image) for image in images]).astype(int)


def cells(path, n, columns=2):
    grid = np.asarray(Image.open(path).convert("RGB")).astype(int)
    at = [(GAP + i // columns * (SIDE + GAP), GAP + i % columns * (SIDE + GAP)) for i in range(n)]
    return np.stack([grid[y:y + SIDE, x:x + SIDE] for y, x in at])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bin", required=True)
    os.environ["SDTRAIN_BIN"], os.environ["SDTRAIN_SOURCE"] = os.path.abspath(p.parse_args().bin), str(ROOT)
    sys.path.insert(0, str(ROOT / "tests/system"))
    import dataset
    import lab
    import outside

    model, bad = str(ROOT / "tests/models/tiny-encoders"), 0
    work = lab.Lab()
    try:
        dataset.write(work.path("latents"), 20, 1, latents=(4, SIDE // 8, SIDE // 8), text=(77, 64))
        work.write("wide.json", json.dumps(dict(lab.UNET, cross_attention_dim=64)))
        cluster = work.cluster(nodes=1)
        for prediction in ("epsilon", "v_prediction"):
            name = prediction.replace("_", "-")
            job = work.job(name, data=work.path("latents"), model__config=work.path("wide.json"), train__steps=20,
                           train__prediction=prediction, train__ema={"start_step": 10, "decay": 0.5})
            cluster.submit(job)
            cluster.finish(job)
            cluster.ctl("job", "export", name, "--pipeline", work.path("of-" + name), "--model", model)
            theirs = draw_theirs(work.path("of-" + name), outside)
            words = [word for caption in CAPTIONS for word in ("--caption", caption)]
            code, text = work.run(os.path.join(lab.BIN, "sdtrainer"), "sample", "--job", work.job_file(job), "--out",
                                  work.path("grid.png"), "--model", model, "--samples", str(len(CAPTIONS)), "--steps",
                                  str(STEPS), "--seed", str(SEED), "--guidance", "3", *words)
            if code != 0:
                sys.exit(text)
            off = np.abs(cells(work.path("grid.png"), len(CAPTIONS)) - theirs)
            fine = off.max() <= REACH and theirs.std() > 5
            bad += not fine
            print(f"{'ok ' if fine else 'BAD'} {prediction}: {off.max()} levels of a byte (at most {REACH}), "
                  f"{(off > 0).mean():.2g} of the bytes differ; their deviation is {theirs.std():.0f}", flush=True)
        cluster.down()
    finally:
        work.close()
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
