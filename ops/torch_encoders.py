#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stable Diffusion 2's VAE encoder and text encoder, with random weights, by diffusers and transformers: the peer of
bench-encoder, in fp32 and channels_last. tests/interop/compare-encoders.py takes the models from here.

    torch_encoders.py --save FOLDER                                a model folder of 1.7 GB
    torch_encoders.py --part vae|text [--side 256] [--batch 1] [--threads 2] [--steps 5] [--paced]

With --paced it says that it is ready; then each step waits for a line on standard input and prints its milliseconds.
"""
import argparse
import json
import pathlib
import sys
import time

import diffusers
import torch
import transformers
from diffusers import AutoencoderKL
from transformers import CLIPTextConfig, CLIPTextModel

VAE = dict(in_channels=3, out_channels=3, latent_channels=4, block_out_channels=[128, 256, 512, 512], layers_per_block=2,
           down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4, norm_num_groups=32,
           act_fn="silu", sample_size=768)
TEXT = dict(vocab_size=49408, hidden_size=1024, intermediate_size=4096, num_hidden_layers=23, num_attention_heads=16,
            max_position_embeddings=77, hidden_act="gelu", layer_norm_eps=1e-5, projection_dim=512)


def shake(model, seed):
    """Norms and biases, too, get something else than ones and zeros."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(torch.empty_like(p).uniform_(-0.1, 0.1, generator=generator))
    return model.eval()


def vae(seed=17):
    torch.manual_seed(seed)
    return shake(AutoencoderKL(**VAE), seed)


def text_encoder(seed=17):
    torch.manual_seed(seed)
    return shake(CLIPTextModel(CLIPTextConfig(**TEXT)), seed)


def save(folder):
    vae().save_pretrained(folder / "vae")
    text_encoder().save_pretrained(folder / "text_encoder")


def network(o):
    """What is timed, as a function without arguments."""
    if o.part == "vae":
        model = vae().to(memory_format=torch.channels_last)
        x = torch.rand(o.batch, 3, o.side, o.side).mul_(2).sub_(1).to(memory_format=torch.channels_last)
        return lambda: (model.encode(x).latent_dist.mode() * model.config.scaling_factor).half()
    model = text_encoder()
    ids = torch.arange(o.batch * 77).mul_(7919).remainder_(TEXT["vocab_size"]).reshape(o.batch, 77)
    return lambda: model(ids).last_hidden_state.half()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--save", type=pathlib.Path)
    p.add_argument("--part", choices=["vae", "text"], default="vae")
    for name, value in (("side", 256), ("batch", 1), ("threads", 2), ("steps", 5)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--paced", action="store_true")
    o = p.parse_args()
    if o.save:
        save(o.save)
        return
    torch.set_num_threads(o.threads)
    msec = []
    with torch.inference_mode():
        run = network(o)
        for _ in range(2):
            run()
        if o.paced:
            print("ready", flush=True)
        cpu = time.process_time()
        for _ in range(o.steps):
            if o.paced:
                sys.stdin.readline()
            start = time.perf_counter()
            run()
            msec.append(1e3 * (time.perf_counter() - start))
            if o.paced:
                print(f"{msec[-1]:.3f}", flush=True)
        cpu = 1e3 * (time.process_time() - cpu) / o.steps
    msec.sort()
    print(json.dumps({
        "figure": f"encode_{o.part}_torch", "value": round(msec[o.steps // 2], 3), "unit": "ms", "min": round(msec[0], 3),
        "max": round(msec[-1], 3), "cpu_ms": round(cpu, 3), "runs": o.steps, "threads": o.threads, "torch": torch.__version__,
        "diffusers": diffusers.__version__, "transformers": transformers.__version__}))


if __name__ == "__main__":
    main()
