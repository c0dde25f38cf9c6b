#!/usr/bin/env python3
"""Makes tests/golden/unet-*.safetensors and sd2-base-parameters.txt: what diffusers'
UNet2DConditionModel, torch.optim.AdamW and DDIMScheduler give in float64.

    python3 -m venv v && v/bin/pip install -r tests/golden/requirements.txt
    v/bin/python tests/golden/make-unet.py

Each file holds, for one small config:
  weights/NAME    initial weights
  x0 noise text   [steps][n][h][w][c], likewise, [steps][n][tokens][dim]; timesteps [steps][n]
  prediction      [n][h][w][c] of step 0 under the initial weights
  gradients/NAME  of that step's loss, unclipped
  losses norms    [steps]: loss and gradient norm before clipping, of ten optimizer steps
  final/NAME ema/NAME   after them
  ddim            [n][h][w][c]: latents that DDIM (eta 0) draws with the initial weights
and, as metadata, the config and the settings. Results are computed in float64 and stored in
float32; inputs and initial weights are float32 numbers to begin with.
"""
import importlib.metadata
import json
import pathlib

import numpy as np
import torch
from diffusers import DDIMScheduler, UNet2DConditionModel
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
STEPS, WARMUP, EMA_START = 10, 4, 3
LR, BETAS, EPS, DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01
EMA_DECAY = 0.9
SCHEDULE = dict(beta_start=0.00085, beta_end=0.012, num_train_timesteps=1000, beta_schedule="scaled_linear")
DDIM_STEPS, DDIM_GUIDANCE, DDIM_SEED = 5, 3.0, 7

COMMON = dict(sample_size=8, cross_attention_dim=12, norm_num_groups=4, mid_block_type="UNetMidBlock2DCrossAttn")

# Between them: both kinds of down and up blocks, first and last; one, two and three levels; one and
# two layers; both projections; one number of heads and several; shortcuts with and without; two and
# more channels in a group, also odd; odd text lengths; square, oblong and odd latents.
CASES = {
    "two-levels": dict(
        n=2, h=8, w=8, tokens=7, prediction="epsilon", clip=1.0,
        config=dict(COMMON, in_channels=4, out_channels=4, block_out_channels=[8, 16], layers_per_block=1,
                    down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
                    up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"],
                    attention_head_dim=[2, 4], use_linear_projection=True)),
    "three-levels": dict(
        n=2, h=8, w=4, tokens=5, prediction="v_prediction", clip=1.2,
        config=dict(COMMON, in_channels=4, out_channels=4, block_out_channels=[8, 12, 12], layers_per_block=2,
                    down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
                    up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
                    attention_head_dim=2, use_linear_projection=False)),
    "one-level": dict(
        n=3, h=5, w=7, tokens=3, prediction="epsilon", clip=1000.0,
        config=dict(COMMON, in_channels=3, out_channels=3, block_out_channels=[8], layers_per_block=2,
                    down_block_types=["CrossAttnDownBlock2D"], up_block_types=["CrossAttnUpBlock2D"],
                    attention_head_dim=[1], use_linear_projection=True,
                    flip_sin_to_cos=False, freq_shift=1, norm_eps=1e-4)),
    # 5 -> 3 -> 2 and 7 -> 4 -> 2: what is upsampled takes its skip's size
    "odd-sides": dict(
        n=2, h=5, w=7, tokens=4, prediction="epsilon", clip=1.0,
        config=dict(COMMON, in_channels=4, out_channels=4, block_out_channels=[8, 8, 16], layers_per_block=1,
                    down_block_types=["CrossAttnDownBlock2D", "DownBlock2D", "DownBlock2D"],
                    up_block_types=["UpBlock2D", "UpBlock2D", "CrossAttnUpBlock2D"],
                    attention_head_dim=[2, 2, 4], use_linear_projection=True)),
}

SD2_BASE = dict(
    sample_size=64, in_channels=4, out_channels=4, block_out_channels=[320, 640, 1280, 1280], layers_per_block=2,
    down_block_types=["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
    up_block_types=["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3,
    attention_head_dim=[5, 10, 20, 20], cross_attention_dim=1024, use_linear_projection=True)


def check_versions():
    for line in (HERE / "requirements.txt").read_text().split():
        name, version = line.split("==")
        found = importlib.metadata.version(name).split("+")[0]
        if found != version:
            raise SystemExit(f"{name} {found} is installed, the golden files are made with {version}")


def philox4x32(key, high, low):
    c = [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def normal(key, position, count):
    """Draw j is draw j % 4 of the block at counter (position, j / 4), by Box-Muller."""
    draws = []
    for block in range((count + 3) // 4):
        w = philox4x32(key, position, block)
        for a, b in ((w[0], w[1]), (w[2], w[3])):
            radius = np.sqrt(-2.0 * np.log((a + 0.5) / 2**32))
            angle = (b + 0.5) / 2**32 * 2.0 * np.pi
            draws += [radius * np.cos(angle), radius * np.sin(angle)]
    return np.array(draws[:count], dtype=np.float32)


def nchw(x):
    return torch.from_numpy(np.ascontiguousarray(x)).double().permute(0, 3, 1, 2)


def nhwc(x):
    return x.detach().permute(0, 2, 3, 1).contiguous().float().numpy()


def make_model(config, rng):
    model = UNet2DConditionModel(**config).double()
    with torch.no_grad():  # norms too get something else than ones and zeros
        for p in model.parameters():
            bound = 1.0 / np.sqrt(np.prod(p.shape[1:])) if p.dim() > 1 else 0.3
            base = 1.0 if p.dim() == 1 and float(p.min()) == 1.0 else 0.0
            p.copy_(torch.from_numpy((base + rng.uniform(-bound, bound, p.shape)).astype(np.float32)))
    return model


def ddim(model, case, text, empty):
    shape = (case["h"], case["w"], case["config"]["in_channels"])
    scheduler = DDIMScheduler(**SCHEDULE, clip_sample=False, set_alpha_to_one=False, steps_offset=1,
                              prediction_type=case["prediction"])
    scheduler.set_timesteps(DDIM_STEPS)
    key = DDIM_SEED
    x = nchw(np.stack([normal(key, i, int(np.prod(shape))).reshape(shape) for i in range(case["n"])]))
    with torch.no_grad():
        for t in scheduler.timesteps:
            conditional = model(x, t, text).sample
            unconditional = model(x, t, empty).sample
            guided = unconditional + DDIM_GUIDANCE * (conditional - unconditional)
            x = scheduler.step(guided, t, x, eta=0.0).prev_sample
    return nhwc(x)


def make_case(name, case):
    rng = np.random.default_rng(list(name.encode()))
    config, n, h, w = case["config"], case["n"], case["h"], case["w"]
    model = make_model(config, rng)
    out = {f"weights/{k}": p.detach().float().numpy().copy() for k, p in model.named_parameters()}

    latent, text_shape = (STEPS, n, h, w, config["in_channels"]), (STEPS, n, case["tokens"], config["cross_attention_dim"])
    out["x0"], out["noise"] = (rng.standard_normal(latent).astype(np.float32) for _ in range(2))
    out["text"] = rng.standard_normal(text_shape).astype(np.float32)
    out["timesteps"] = rng.integers(0, 1000, (STEPS, n)).astype(np.int32)
    empty = rng.standard_normal((case["tokens"], config["cross_attention_dim"])).astype(np.float32)
    out["empty_text"] = empty
    repeated = torch.from_numpy(empty).double().repeat(n, 1, 1)
    out["ddim"] = ddim(model, case, torch.from_numpy(out["text"][0]).double(), repeated)

    betas = np.linspace(np.sqrt(SCHEDULE["beta_start"]), np.sqrt(SCHEDULE["beta_end"]), 1000) ** 2
    alpha_bar = torch.from_numpy(np.cumprod(1.0 - betas))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    ema, losses, norms = {}, [], []
    for step in range(1, STEPS + 1):
        i = step - 1
        x0, noise = nchw(out["x0"][i]), nchw(out["noise"][i])
        t = torch.from_numpy(out["timesteps"][i]).long()
        a, b = (f.reshape(n, 1, 1, 1) for f in (alpha_bar[t].sqrt(), (1.0 - alpha_bar[t]).sqrt()))
        target = noise if case["prediction"] == "epsilon" else a * noise - b * x0
        prediction = model(a * x0 + b * noise, t, torch.from_numpy(out["text"][i]).double()).sample
        loss = torch.nn.functional.mse_loss(prediction, target)
        optimizer.zero_grad()
        loss.backward()
        if step == 1:
            out["prediction"] = nhwc(prediction)
            out.update({f"gradients/{k}": p.grad.float().numpy().copy() for k, p in model.named_parameters()})
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), case["clip"]).item())
        optimizer.param_groups[0]["lr"] = LR * min(1.0, step / WARMUP)
        optimizer.step()
        for k, p in model.named_parameters():
            if step == EMA_START:
                ema[k] = p.detach().clone()
            elif step > EMA_START:
                ema[k].mul_(EMA_DECAY).add_(p.detach(), alpha=1.0 - EMA_DECAY)
    out["losses"], out["norms"] = np.array(losses, np.float32), np.array(norms, np.float32)
    for k, p in model.named_parameters():
        out[f"final/{k}"], out[f"ema/{k}"] = p.detach().float().numpy(), ema[k].float().numpy()

    settings = dict(prediction=case["prediction"], lr=LR, beta1=BETAS[0], beta2=BETAS[1], eps=EPS, weight_decay=DECAY,
                    clip_norm=case["clip"], warmup_steps=WARMUP, ema_decay=EMA_DECAY, ema_start=EMA_START,
                    ddim_steps=DDIM_STEPS, ddim_guidance=DDIM_GUIDANCE, ddim_seed=DDIM_SEED)
    config = dict(config, _class_name="UNet2DConditionModel")
    path = HERE / f"unet-{name}.safetensors"
    save_file(out, path, metadata=dict(config=json.dumps(config), settings=json.dumps(settings)))
    count = sum(p.numel() for p in model.parameters())
    print(f"{path.name}: {count} parameters, {path.stat().st_size} bytes, losses {losses[0]:.4f}..{losses[-1]:.4f}, "
          f"norms {min(norms):.3f}..{max(norms):.3f}")


def main():
    check_versions()
    for name, case in CASES.items():
        make_case(name, case)
    with torch.device("meta"):
        model = UNet2DConditionModel(**SD2_BASE)
    lines = sorted(f"{k} {list(p.shape)}\n" for k, p in model.named_parameters())
    (HERE / "sd2-base-parameters.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
