#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of bench-network: one training step (forward, MSE, backward, clip, AdamW) of the same U-Net
in PyTorch and diffusers, fp32, as a user would write it; the fastest of the common variants is what
counts. Prints one line of JSON with the same fields.

    python3 -m venv v && v/bin/pip install -r tests/golden/requirements.txt
    v/bin/python ops/bench-torch.py [--channels 64,128,256] [--heads 4,8,8] [--side 32] [--grain 8]
        [--tokens 77] [--text-dim 256] [--layers 2] [--threads 2] [--steps 20] [--channels-last] [--compile]
        [--paced]

With --paced it says that it is ready; then each step waits for a line on standard input and prints its milliseconds.
"""
import argparse
import json
import sys
import time

import diffusers
import torch
from diffusers import UNet2DConditionModel
from torch.utils.flop_counter import FlopCounterMode


def counts(text):
    return [int(x) for x in text.split(",")]


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--channels", type=counts, default=[64, 128, 256])
    p.add_argument("--heads", type=counts, default=[4, 8, 8])
    for name, value in (("side", 32), ("grain", 8), ("tokens", 77), ("text-dim", 256), ("layers", 2), ("threads", 2),
                        ("steps", 20)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--paced", action="store_true")
    return p.parse_args()


def main():
    o = parse()
    torch.set_num_threads(o.threads)
    torch.manual_seed(17)
    last = len(o.channels) - 1
    model = UNet2DConditionModel(
        sample_size=o.side, in_channels=4, out_channels=4, block_out_channels=o.channels, layers_per_block=o.layers,
        down_block_types=["CrossAttnDownBlock2D"] * last + ["DownBlock2D"],
        up_block_types=["UpBlock2D"] + ["CrossAttnUpBlock2D"] * last,
        attention_head_dim=o.heads, cross_attention_dim=o.text_dim, use_linear_projection=True)
    x, target = (torch.randn(o.grain, 4, o.side, o.side) for _ in range(2))
    if o.channels_last:
        model = model.to(memory_format=torch.channels_last)
        x, target = (t.to(memory_format=torch.channels_last) for t in (x, target))
    text = torch.randn(o.grain, o.tokens, o.text_dim)
    timesteps = torch.tensor([(i * 997 + 13) % 1000 for i in range(o.grain)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    run = torch.compile(model) if o.compile else model

    def step():
        loss = torch.nn.functional.mse_loss(run(x, timesteps, text).sample, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    with FlopCounterMode(display=False) as flops:
        step()
    for _ in range(2):
        step()
    if o.paced:
        print("ready", flush=True)
    msec, cpu = [], time.process_time()
    for _ in range(o.steps):
        if o.paced:
            sys.stdin.readline()
        start = time.perf_counter()
        loss = step()
        msec.append(1e3 * (time.perf_counter() - start))
        if o.paced:
            print(f"{msec[-1]:.3f}", flush=True)
    cpu = 1e3 * (time.process_time() - cpu) / o.steps
    msec.sort()
    print(json.dumps({
        "figure": "training_step_torch", "value": round(msec[o.steps // 2], 3), "unit": "ms", "min": round(msec[0], 3),
        "max": round(msec[-1], 3), "cpu_ms": round(cpu, 3), "runs": o.steps, "threads": o.threads,
        "parameters": sum(p.numel() for p in model.parameters()), "torch": torch.__version__,
        "diffusers": diffusers.__version__, "gflop": round(flops.get_total_flops() / 1e9, 1),
        "channels_last": o.channels_last, "compile": o.compile, "loss": loss}))


if __name__ == "__main__":
    main()
