#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of a GPU's figures: PyTorch on the same shapes and on the whole step, as one who cares for speed writes it.

    ops/gpu_torch.py shapes FILE [--device cpu] [--seconds S]   FILE: JSON, {"operations": ["conv 32x64x64 320->320 k3 s1", ...]}
    ops/gpu_torch.py step SIZE [--compile] [--device cpu] [--steps N]      SIZE: 512, 256 or small
    ops/gpu_torch.py check FILE.safetensors                     the U-Net below against a golden file

One line of JSON each. It needs torch alone; where there is none it says so and exits with 3. bf16, channels_last, scaled
dot-product attention; the step by autocast with fp32 master weights, fused AdamW, clipping and EMA.
"""
import argparse
import json
import math
import re
import statistics
import struct
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as error:
    print(f"no torch: {error}", file=sys.stderr)
    sys.exit(3)

SIZES = {"512": (64, 32), "256": (32, 128), "small": (8, 2)}
SD2 = {"block_out_channels": [320, 640, 1280, 1280], "down": [True, True, True, False], "up": [False, True, True, True],
       "layers_per_block": 2, "heads": [5, 10, 20, 20], "cross_attention_dim": 1024, "groups": 32, "in_channels": 4, "out_channels": 4}
SMALL = dict(SD2, block_out_channels=[32, 64], down=[True, False], up=[False, True], layers_per_block=1, heads=[1, 2], cross_attention_dim=16,
             groups=4)
SD2_PARAMETERS = 865910724


# ---- the U-Net, with the names that checkpoints give its parameters ----

class Resnet(nn.Module):
    def __init__(self, c_in, c_out, time, groups):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, c_in, eps=1e-5), nn.Conv2d(c_in, c_out, 3, padding=1)
        self.time_emb_proj = nn.Linear(time, c_out)
        self.norm2, self.conv2 = nn.GroupNorm(groups, c_out, eps=1e-5), nn.Conv2d(c_out, c_out, 3, padding=1)
        if c_in != c_out:
            self.conv_shortcut = nn.Conv2d(c_in, c_out, 1)

    def forward(self, x, time):
        h = self.conv1(F.silu(self.norm1(x))) + self.time_emb_proj(F.silu(time))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x)


class Attention(nn.Module):
    def __init__(self, c, heads, kv):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = nn.Linear(c, c, bias=False), nn.Linear(kv, c, bias=False), nn.Linear(kv, c, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(c, c)])

    def forward(self, x, text=None):
        text = x if text is None else text
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in (self.to_q(x), self.to_k(text), self.to_v(text)))
        return self.to_out[0](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Geglu(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.proj = nn.Linear(c, 8 * c)

    def forward(self, x):
        hidden, gate = self.proj(x).chunk(2, dim=-1)
        return hidden * F.gelu(gate)


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.net = nn.ModuleList([Geglu(c), nn.Identity(), nn.Linear(4 * c, c)])

    def forward(self, x):
        return self.net[2](self.net[0](x))


class Block(nn.Module):
    def __init__(self, c, heads, text):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(c) for _ in range(3))
        self.attn1, self.attn2, self.ff = Attention(c, heads, c), Attention(c, heads, text), FeedForward(c)

    def forward(self, x, text):
        x = x + self.attn1(self.norm1(x))
        x = x + self.attn2(self.norm2(x), text)
        return x + self.ff(self.norm3(x))


class Transformer(nn.Module):
    def __init__(self, c, heads, text, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, c, eps=1e-6)
        self.proj_in, self.proj_out = nn.Linear(c, c), nn.Linear(c, c)
        self.transformer_blocks = nn.ModuleList([Block(c, heads, text)])

    def forward(self, x, text):
        n, c, h, w = x.shape
        t = self.proj_in(self.norm(x).permute(0, 2, 3, 1).reshape(n, h * w, c))
        t = self.proj_out(self.transformer_blocks[0](t, text))
        return x + t.reshape(n, h, w, c).permute(0, 3, 1, 2)


class Conv(nn.Module):
    """conv, as down- and upsamplers name it."""

    def __init__(self, c, stride):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, stride=stride, padding=1)

    def forward(self, x):
        return self.conv(x)


class Level(nn.Module):
    def __init__(self, resnets, attentions, down=None, up=None):
        super().__init__()
        self.resnets = nn.ModuleList(resnets)
        if attentions:
            self.attentions = nn.ModuleList(attentions)
        if down:
            self.downsamplers = nn.ModuleList([down])
        if up:
            self.upsamplers = nn.ModuleList([up])


class TimeEmbedding(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(c, 4 * c), nn.Linear(4 * c, 4 * c)

    def forward(self, x):
        return self.linear_2(F.silu(self.linear_1(x)))


class Unet(nn.Module):
    def __init__(self, config):
        super().__init__()
        cs, layers, heads, text, groups = (config[key] for key in ("block_out_channels", "layers_per_block", "heads", "cross_attention_dim",
                                                                   "groups"))
        time, last = 4 * cs[0], len(cs) - 1
        self.conv_in, self.time_embedding = nn.Conv2d(config["in_channels"], cs[0], 3, padding=1), TimeEmbedding(cs[0])
        self.down_blocks, self.up_blocks, skips, c = nn.ModuleList(), nn.ModuleList(), [cs[0]], cs[0]
        for i, out in enumerate(cs):
            resnets = [Resnet(c if j == 0 else out, out, time, groups) for j in range(layers)]
            attentions = [Transformer(out, heads[i], text, groups) for _ in range(layers)] if config["down"][i] else []
            self.down_blocks.append(Level(resnets, attentions, down=Conv(out, 2) if i < last else None))
            skips += [out] * (layers + (i < last))
            c = out
        self.mid_block = Level([Resnet(c, c, time, groups) for _ in range(2)], [Transformer(c, heads[last], text, groups)])
        for i, out in enumerate(reversed(cs)):
            resnets, attentions = [], []
            for _ in range(layers + 1):
                resnets.append(Resnet(c + skips.pop(), out, time, groups))
                c = out
                if config["up"][i]:
                    attentions.append(Transformer(out, heads[last - i], text, groups))
            self.up_blocks.append(Level(resnets, attentions, up=Conv(out, 1) if i < last else None))
        self.conv_norm_out, self.conv_out = nn.GroupNorm(groups, c, eps=1e-5), nn.Conv2d(c, config["out_channels"], 3, padding=1)

    def forward(self, x, timesteps, text):
        half = self.conv_in.out_channels // 2
        angles = timesteps[:, None].float() * torch.exp(torch.arange(half, device=x.device) * (-math.log(10000) / half))
        time = self.time_embedding(torch.cat([angles.cos(), angles.sin()], dim=1).to(self.conv_in.weight.dtype))
        x = self.conv_in(x)
        skips = [x]
        for level in self.down_blocks:
            for j, resnet in enumerate(level.resnets):
                x = resnet(x, time)
                if hasattr(level, "attentions"):
                    x = level.attentions[j](x, text)
                skips.append(x)
            if hasattr(level, "downsamplers"):
                x = level.downsamplers[0](x)
                skips.append(x)
        x = self.mid_block.resnets[0](x, time)
        x = self.mid_block.resnets[1](self.mid_block.attentions[0](x, text), time)
        for level in self.up_blocks:
            for j, resnet in enumerate(level.resnets):
                x = resnet(torch.cat([x, skips.pop()], dim=1), time)
                if hasattr(level, "attentions"):
                    x = level.attentions[j](x, text)
            if hasattr(level, "upsamplers"):  # odd sides are not whole multiples
                x = level.upsamplers[0](F.interpolate(x, size=skips[-1].shape[-2:], mode="nearest"))
        return self.conv_out(F.silu(self.conv_norm_out(x)))


# ---- time ----

class Clock:
    def __init__(self, device):
        self.cuda = device == "cuda"

    def usec(self, run, seconds):
        """Of one run(), the median of rounds that take so long together; the first rounds warm up."""
        self.round(run, 1)
        once = self.round(run, 1)
        n = max(1, min(100, int(20000 / max(once, 1))))
        rounds, ends = [], time.monotonic() + seconds
        while len(rounds) < 3 or (len(rounds) < 7 and time.monotonic() < ends):
            rounds.append(self.round(run, n) / n)
        return statistics.median(rounds)

    def round(self, run, n):
        if not self.cuda:
            began = time.perf_counter()
            for _ in range(n):
                run()
            return 1e6 * (time.perf_counter() - began)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(n):
            run()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end)


# ---- shapes ----

CONV = re.compile(r"conv (\d+)x(\d+)x(\d+) (\d+)->(\d+) k(\d) s(\d)")
LINEAR = re.compile(r"linear (\d+)x(\d+)x(\d+) (?:(\d+)\+)?(\d+)->(\d+)")  # 640+320: of two tensors
ATTENTION = re.compile(r"attention n(\d+) h(\d+) d(\d+) (\d+)x(\d+)")


def conv_passes(shape, device):
    n, h, w, c_in, c_out, k, stride = shape
    last = {"memory_format": torch.channels_last}
    x = torch.randn(n, c_in, h, w, device=device).to(torch.bfloat16).to(**last)
    weight = torch.randn(c_out, c_in, k, k, device=device).to(torch.bfloat16).to(**last)
    bias = torch.randn(c_out, device=device).to(torch.bfloat16)
    dy = torch.randn_like(F.conv2d(x, weight, bias, stride, k // 2)).to(**last)

    def backward(mask):
        return lambda: torch.ops.aten.convolution_backward(dy, x, weight, [c_out], [stride] * 2, [k // 2] * 2, [1, 1], False, [0, 0], 1, mask)
    return {"forward": lambda: F.conv2d(x, weight, bias, stride, k // 2), "backward_data": backward([True, False, False]),
            "backward_weight": backward([False, True, False])}


def linear_passes(shape, device):
    rows, c_in, c_out = shape[0] * shape[1] * shape[2], shape[3] + shape[4], shape[5]
    x, weight, bias, dy = (torch.randn(*size, device=device).to(torch.bfloat16) for size in ((rows, c_in), (c_out, c_in), (c_out,), (rows, c_out)))
    return {"forward": lambda: F.linear(x, weight, bias), "backward_data": lambda: dy @ weight, "backward_weight": lambda: dy.t() @ x}


def attention_passes(shape, device):
    n, heads, d, queries, keys = shape
    q, k, v = (torch.randn(n, t, heads, d, device=device).to(torch.bfloat16).transpose(1, 2).requires_grad_() for t in (queries, keys, keys))
    out = F.scaled_dot_product_attention(q, k, v)
    dout = torch.randn_like(out)
    return {"forward": lambda: F.scaled_dot_product_attention(q, k, v),
            "backward": lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)}


def shapes(operations, device, seconds):
    torch.backends.cudnn.benchmark = True
    clock, measured, ends = Clock(device), {}, time.monotonic() + seconds
    for left, name in zip(range(len(operations), 0, -1), operations):
        if time.monotonic() > ends:
            break
        for pattern, passes in ((CONV, conv_passes), (LINEAR, linear_passes), (ATTENTION, attention_passes)):
            match = pattern.match(name)
            if match:
                runs = passes([int(part or 0) for part in match.groups()], device)
                share = (ends - time.monotonic()) / left / len(runs) / 2
                measured[name] = {which: round(clock.usec(run, min(share, 0.3)), 3) for which, run in runs.items()}
    return {"torch": torch.__version__, "operations": measured, "whole": len(measured) == len(operations)}


# ---- the whole step ----

def step(size, compiled, device, steps):
    side, grain = SIZES[size]
    config, tokens = (SMALL, 7) if size == "small" else (SD2, 77)
    torch.manual_seed(17)
    torch.backends.cudnn.benchmark = True
    with torch.device(device):
        model = Unet(config).to(memory_format=torch.channels_last)
        x, target = (torch.randn(grain, 4, side, side).to(memory_format=torch.channels_last) for _ in range(2))
        text, timesteps = torch.randn(grain, tokens, config["cross_attention_dim"]), torch.arange(grain) * 997 % 1000
    parameters = list(model.parameters())
    average = [p.detach().clone() for p in parameters]
    n_parameters = sum(p.numel() for p in parameters)
    assert config is not SD2 or n_parameters == SD2_PARAMETERS, n_parameters
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    run = torch.compile(model) if compiled else model

    def one():
        with torch.autocast(device, dtype=torch.bfloat16):
            prediction = run(x, timesteps, text)
        loss = F.mse_loss(prediction.float(), target)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch._foreach_lerp_(average, [p.detach() for p in parameters], 1e-4)
        return loss

    began = time.monotonic()
    losses = [one().item() for _ in range(3)]
    warm_up = time.monotonic() - began
    times = []
    for _ in range(steps):
        began = time.monotonic()
        losses.append(one().item())
        times.append(time.monotonic() - began)
    usual = statistics.median(times)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return {"torch": torch.__version__, "size": size, "compiled": compiled, "parameters": n_parameters, "grain": grain,
            "samples_per_second": round(grain / usual, 3), "step_seconds": [round(t, 4) for t in times], "warm_up_seconds": round(warm_up, 1),
            "memory_bytes": peak, "losses": losses}


# ---- against a golden file ----

def golden(path):
    """Its config, text and tensors, of fp32."""
    with open(path, "rb") as file:
        n = struct.unpack("<Q", file.read(8))[0]
        header, data = json.loads(file.read(n)), file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            kind = {"F32": torch.float32, "I32": torch.int32, "I64": torch.int64}[entry["dtype"]]
            tensors[name] = torch.frombuffer(bytearray(data[slice(*entry["data_offsets"])]), dtype=kind).reshape(entry["shape"])
    return header["__metadata__"], tensors


def check(path):
    """How far the prediction is from the file's, which was computed in float64; and the parameters of sd2-base."""
    metadata, tensors = golden(path)
    config = json.loads(metadata["config"])
    heads = config["attention_head_dim"]
    ours = {"block_out_channels": config["block_out_channels"], "layers_per_block": config["layers_per_block"],
            "heads": heads if isinstance(heads, list) else [heads] * len(config["block_out_channels"]),
            "cross_attention_dim": config["cross_attention_dim"], "groups": config["norm_num_groups"],
            "down": ["CrossAttn" in kind for kind in config["down_block_types"]], "up": ["CrossAttn" in kind for kind in config["up_block_types"]],
            "in_channels": config["in_channels"], "out_channels": config["out_channels"]}
    model = Unet(ours).double()
    model.load_state_dict({name[len("weights/"):]: value.double() for name, value in tensors.items() if name.startswith("weights/")})
    betas = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000, dtype=torch.float64) ** 2
    signal = torch.cumprod(1 - betas, 0)[tensors["timesteps"][0].long()].reshape(-1, 1, 1, 1)
    x = signal.sqrt() * tensors["x0"][0].double() + (1 - signal).sqrt() * tensors["noise"][0].double()
    with torch.no_grad():
        prediction = model(x.permute(0, 3, 1, 2), tensors["timesteps"][0], tensors["text"][0].double()).permute(0, 2, 3, 1)
    with torch.device("meta"):
        n_parameters = sum(p.numel() for p in Unet(SD2).parameters())
    return {"error": (prediction - tensors["prediction"].double()).abs().max().item(), "size": prediction.abs().max().item(),
            "parameters": n_parameters}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["shapes", "step", "check"])
    parser.add_argument("of")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    if arguments.what != "check" and arguments.device == "cuda" and not torch.cuda.is_available():
        print("no torch: it has no GPU here", file=sys.stderr)
        return 3
    if arguments.what == "check":
        told = check(arguments.of)
    elif arguments.what == "shapes":
        with open(arguments.of, encoding="utf-8") as file:
            told = shapes(json.load(file)["operations"], arguments.device, arguments.seconds)
    else:
        told = step(arguments.of, arguments.compile, arguments.device, arguments.steps)
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
