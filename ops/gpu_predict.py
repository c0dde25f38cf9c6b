#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a grain of sd2-base should take on an H100, from the operations of the tape with their shapes; beside it what an H100 took.

    ops/gpu_predict.py [--check] [--page FILE]           writes the table "predicted" of docs/figures.md
    ops/gpu_predict.py --size 512 [--changes none|all|NAME,...] [--operations FILE]    one JSON object of one size

The operations are those that bin/list-operations prints (SDTRAIN_BIN, or build/release/bin). An operation takes the FLOP of its
products and the bytes that its kernels move, each at a rate of RATES; nothing overlaps. CHANGES are kernels that move less, or move
it faster, than those that an H100 ran first; DONE are those of them that this tree has. --check writes nothing: 1 if the page has
another table.
"""
import argparse
import collections
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- begin: predicted -->", "<!-- end -->"
RESULTS = os.path.join(ROOT, "ops/gpu-results/NVIDIA-H100-80GB-HBM3")
GRAINS = {"512": 32, "256": 128}

# Assumed for an H100 SXM before any line of this project's code had run on one. TFLOP/s of dense bf16 products (989 is its peak) and
# TB/s of its memory (3.35 by its maker, 3.0 of a copy). A kernel that issues many instructions an element gets less of the memory.
TFLOPS, TBS = 1e6, 1e6  # an image's FLOP and bytes to microseconds
RATES = {
    "conv forward": 600 * TFLOPS,  # cuDNN's precompiled engines at 3x3, channels last: 60 % of the peak
    "conv data": 560 * TFLOPS,
    "conv weight": 500 * TFLOPS,  # sums over all pixels: few tiles, much split
    "linear forward": 560 * TFLOPS,  # cuBLASLt; K of 320 to 1280 is short
    "linear data": 560 * TFLOPS,
    "linear weight": 480 * TFLOPS,  # D in fp32
    # By queries: from 4096, from 1024, fewer. FlashAttention-3's makers publish 240 to 470 for deterministic backward of heads of 64.
    "attention forward": ((4096, 430 * TFLOPS), (1024, 400 * TFLOPS), (0, 200 * TFLOPS)),
    "attention backward": ((4096, 420 * TFLOPS), (1024, 300 * TFLOPS), (0, 150 * TFLOPS)),
    "attention bytes": 2.4 * TBS,  # q, y and their gradients, where there are too few keys to hide them
    "dP workspace": 2.63 * TBS,  # dP of deterministic backward: written, and read again
    "group_norm forward": 2.35 * TBS,  # SiLU with IEEE divisions
    "group_norm backward": 2.16 * TBS,
    "layer_norm": 2.52 * TBS,
    "geglu forward": 2.39 * TBS,  # an exponential and IEEE divisions: near the limit of issued instructions
    "geglu backward": 2.30 * TBS,
    "element": 2.6 * TBS,  # what is bound by memory alone: also the update, and SiLU and GEGLU with a reciprocal
    "epilogue": 2.42 * TBS,
    "column sums": 2.5 * TBS,
    "copies": 2.02 * TBS,  # concat, upsample, additions: many are small
    "take": 2.3 * TBS,
    "squares": 2.47 * TBS,
    "pack": 0.8 * TBS,  # four divisions of 64 bits an element, reads 36 bytes apart
}
LAUNCH_USEC = 1.4  # between two kernels
KEYS_OF_TILE = 128  # of attention's kernels
DP_BYTES = 1 << 30  # what attention may have of workspace: its images come in equal groups that fit

# What moves fewer bytes, or moves them faster, than the kernels that an H100 ran first.
CHANGES = {
    "group_norm_once": "GroupNorm reads x once, and backward x and dy",
    "column_pieces": "sums of columns of narrow, tall matrices have as many blocks as fill a GPU, and a second kernel",
    "geglu_sums": "GEGLU's backward makes the bias gradient of the linear layer before it",
    "layer_norm_sums": "LayerNorm's backward makes the bias gradients of the layers that its gradient goes to",
    "pack_tiles": "weights are packed by tiles",
    "reciprocal": "SiLU and GEGLU without IEEE divisions",
    "layer_norm_once": "LayerNorm's backward reads x and dy once",
    "no_concat": "norm and shortcut read both tensors of a concat",
    "group_norm_sums": "GroupNorm's backward makes the bias and time gradients of the convolutions that its gradient goes to",
}
DONE = {"pack_tiles", "column_pieces", "geglu_sums", "group_norm_once", "layer_norm_once", "layer_norm_sums", "no_concat", "reciprocal"}

# Rows of the table: name, and what of a profile belongs to it, by kind, pass and the launch's name; the first that fits has it.
ROWS = [
    ("convolution 3x3: forward", lambda kind, phase, name: name.startswith("conv ") and name.endswith(" forward")),
    ("convolution 3x3: by data", lambda kind, phase, name: name.startswith("conv ") and name.endswith("_data")),
    ("convolution 3x3: by weight", lambda kind, phase, name: name.startswith("conv ") and name.endswith("_weight")),
    ("linear and 1x1, all passes", lambda kind, phase, name: name.startswith("linear ")),
    ("self attention: forward", lambda kind, phase, name: name.startswith("attention ") and "x77 " not in name and phase == "forward"),
    ("self attention: backward", lambda kind, phase, name: name.startswith("attention ") and "x77 " not in name),
    ("cross attention", lambda kind, phase, name: name.startswith("attention ")),
    ("gradients into exact sums", lambda kind, phase, name: "gradient_t" in name),
    ("bias and time gradients", lambda kind, phase, name: "column_" in name),
    ("GroupNorm: forward", lambda kind, phase, name: (kind, phase) == ("group_norm", "forward")),
    ("GroupNorm: backward", lambda kind, phase, name: kind == "group_norm"),
    ("LayerNorm: forward", lambda kind, phase, name: (kind, phase) == ("layer_norm", "forward")),
    ("LayerNorm: backward", lambda kind, phase, name: kind == "layer_norm"),
    ("GEGLU: forward", lambda kind, phase, name: (kind, phase) == ("geglu", "forward")),
    ("GEGLU: backward", lambda kind, phase, name: kind == "geglu"),
    ("epilogue of convolutions", lambda kind, phase, name: "epilogue" in name),
    ("concat, upsample, skip additions", lambda kind, phase, name: kind in ("concat", "upsample") or "accumulate" in name),
    ("update (ms a step)", lambda kind, phase, name: kind == "state_update"),
    ("squares (ms a step)", lambda kind, phase, name: kind == "state_squares"),
    ("pack (ms a step)", lambda kind, phase, name: phase == "pack"),
    ("gaps, small kernels", lambda kind, phase, name: True),
]
STEP = {name for name, _ in ROWS if name.endswith("(ms a step)")}
LIBRARY = {name for name, _ in ROWS if name.startswith(("convolution", "linear", "self", "cross", "gaps"))}


def by_tokens(rates, tokens):
    return next(rate for least, rate in rates if tokens >= least)


class Prediction:
    """Of the operations of one grain: sums by row, of microseconds and of bytes."""

    def __init__(self, operations, changes):
        self.changes, self.launches, self.parameters = changes, 0, 0
        self.usec, self.bytes = collections.Counter(), collections.Counter()
        for place, one in enumerate(operations):
            before = operations[place - 1] if place else one
            one = dict(one, joined=before["kind"] == "concat" and before["y"] == one["x"])
            price = getattr(self, "price_" + one["kind"], None)
            if price is None:
                raise ValueError(f"{one['operation']}: nobody says what an operation of kind {one['kind']} takes")
            price(one, operations[place + 1:])
            self.price_parameters(one)
        self.usec["gaps, small kernels"] += self.launches * LAUNCH_USEC
        # m, v, weights and EMA read and written, and the sums; then the squares of the sums.
        self.move("update (ms a step)", 36 * self.parameters, RATES["element"], 0)
        self.move("squares (ms a step)", 4 * self.parameters, RATES["squares"], 0)

    def __contains__(self, change):
        return change in self.changes

    def move(self, row, n_bytes, rate, launches=1):
        self.usec[row] += n_bytes / rate
        self.bytes[row] += n_bytes
        self.launches += launches

    def compute(self, row, flop, rate, launches=1):
        self.usec[row] += flop / rate
        self.launches += launches

    def price_parameters(self, one):
        """Into the exact sums, once a gradient; packed, once a step."""
        n = one["weight"] + one["bias"]
        self.parameters += n
        if n == 0:
            return
        gradient = 2 if one["kind"] == "conv" else 4
        self.move("gradients into exact sums", (gradient + 8) * one["weight"] + 12 * one["bias"], RATES["take"], 2 if one["bias"] else 1)
        if one["kind"] in ("conv", "linear"):
            rate = RATES["element"] if "pack_tiles" in self else RATES["pack"]
            self.move("pack (ms a step)", 6 * one["weight"], rate, 0)

    def add_to(self, one, role):
        """What a gradient that was there before costs: it is read."""
        return 2 * one[role] if one["d" + role] == "added" else 0

    def price_bias(self, one):
        """The pieces are those of kernels/cuda/kernels/column-sums.cu."""
        rows, blocks = one["y"] // one["channels"], -(-one["channels"] // 64) * 8
        in_pieces = "column_pieces" in self and min(264 // blocks, rows // 8192) > 1
        self.move("bias and time gradients", 2 * one["y"], RATES["column sums"], 2 if in_pieces else 1)

    def price_residual(self, one):
        if one["dresidual"] == "added":
            self.move("concat, upsample, skip additions", 6 * one["residual"], RATES["copies"])

    def price_conv(self, one, after):
        self.compute("convolution 3x3: forward", one["flop"], RATES["conv forward"])
        self.move("epilogue of convolutions", 4 * one["y"] + 2 * one["residual"], RATES["epilogue"])
        self.compute("convolution 3x3: by weight", one["flop"], RATES["conv weight"])
        made = "group_norm_sums" in self and after and after[0]["kind"] == "group_norm" and after[0]["x"] == one["y"]
        if not made:
            self.price_bias(one)
        if one["dx"] != "none":
            self.compute("convolution 3x3: by data", one["flop"], RATES["conv data"])
        if one["dsecond"] != "none" and not made:
            self.move("bias and time gradients", 2 * one["y"], RATES["column sums"])
        self.price_residual(one)

    def makes_sums(self, one, after):
        """Whether another operation's backward makes the bias gradient while it writes what it is a sum of."""
        if "geglu_sums" in self and after and after[0]["kind"] == "geglu" and after[0]["x"] == one["y"]:
            return True
        # The gradient that comes to a layer whose result is normalised, and goes on past it, is last written by that norm.
        return "layer_norm_sums" in self and after and after[0]["kind"] == "layer_norm" and after[0]["x"] == one["y"]

    def price_linear(self, one, after):
        row = "linear and 1x1, all passes"
        parts = 2 if "no_concat" in self and one["joined"] else 1
        self.compute(row, one["flop"], RATES["linear forward"], parts + (1 if one["bias"] else 0))  # its bias is rounded before
        self.compute(row, one["flop"], RATES["linear weight"], parts)
        if one["dx"] != "none":
            self.compute(row, one["flop"], RATES["linear data"], parts)
        if parts == 2:  # y is written and read once more, and dy is read once more by each pass of backward
            self.move(row, 8 * one["y"], RATES["element"], 0)
        if one["bias"] and not self.makes_sums(one, after):
            self.price_bias(one)
        self.price_residual(one)

    def price_attention(self, one, _after):
        pairs = one["images"] * one["heads"] * one["queries"]
        dp = pairs * (one["keys"] + -one["keys"] % KEYS_OF_TILE) * 2
        groups = next(n for n in range(1, one["images"] + 1) if one["images"] % n == 0 and dp < n * DP_BYTES)
        flop = one["flop"] / one["keys"] * (one["keys"] + -one["keys"] % KEYS_OF_TILE) if one["second"] else one["flop"]
        forward, backward = (by_tokens(RATES["attention " + which], one["queries"] if not one["second"] else 4096) for which in ("forward", "backward"))
        row = "cross attention" if one["second"] else "self attention: "
        self.compute(row if one["second"] else row + "forward", 2 * flop, forward)
        row = row if one["second"] else row + "backward"
        self.compute(row, 5 * flop, backward, groups)
        self.move(row, 2 * dp, RATES["dP workspace"], 0)
        if one["second"]:  # one tile of keys: nothing hides what moves
            self.move(row, 2 * (2 * one["y"] + 4 * one["y"]), RATES["attention bytes"], 0)

    def price_group_norm(self, one, _after):
        """It reads x twice, and backward x and dy twice, and a twentieth more of each for partial sums."""
        once, quick = "group_norm_once" in self, "reciprocal" in self and one["silu"]
        self.move("GroupNorm: forward", (4 if once else 6.1) * one["y"], RATES["element" if quick else "group_norm forward"], 1 if once else 3)
        self.move("GroupNorm: backward", (6 if once else 10.1) * one["y"] + self.add_to(one, "x"),
                  RATES["element" if quick else "group_norm backward"], 2 if once else 4)

    def price_layer_norm(self, one, _after):
        self.move("LayerNorm: forward", 4 * one["y"], RATES["layer_norm"])
        once = "layer_norm_once" in self
        self.move("LayerNorm: backward", (6 if once else 10.1) * one["y"] + self.add_to(one, "x"), RATES["layer_norm"], 2 if once else 3)

    def price_geglu(self, one, _after):
        quick = "reciprocal" in self
        self.move("GEGLU: forward", 2 * one["x"] + 2 * one["y"], RATES["element" if quick else "geglu forward"])
        self.move("GEGLU: backward", 4 * one["x"] + 2 * one["y"], RATES["element" if quick else "geglu backward"],
                  2 if "geglu_sums" in self else 1)

    def price_silu(self, one, _after):
        self.move("gaps, small kernels", (4 + 6) * one["y"] + self.add_to(one, "x"), RATES["element"], 2)

    def price_time_embedding(self, one, _after):
        self.move("gaps, small kernels", 2 * one["y"], RATES["element"])

    def price_concat(self, one, _after):
        if "no_concat" not in self:
            self.move("concat, upsample, skip additions", 8 * one["y"] + self.add_to(one, "x") + self.add_to(one, "second"), RATES["copies"], 2)

    def price_upsample(self, one, _after):
        self.move("concat, upsample, skip additions", 2 * (2 * one["x"] + 2 * one["y"]) + self.add_to(one, "x"), RATES["copies"], 2)


def list_operations(size):
    program = os.path.join(os.environ.get("SDTRAIN_BIN", os.path.join(ROOT, "build/release/bin")), "list-operations")
    out = subprocess.run([program, f"sd2-{size}"], check=True, timeout=60, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def predict(operations, changes, grain):
    """{row: us an image, or ms a step}, and what follows from it."""
    made = Prediction(operations, changes)
    rows = {name: made.usec[name] / 1e3 if name in STEP else made.usec[name] / grain for name, _ in ROWS}
    return finish(rows, grain, {"launches": made.launches, "own_bytes": sum(n for row, n in made.bytes.items() if row not in LIBRARY | STEP) / grain})


def finish(rows, grain, more):
    image, step = (sum(usec for name, usec in rows.items() if (name in STEP) == is_step) for is_step in (False, True))
    speeds = {str(n): n * grain / (n * grain * image + step * 1e3) * 1e6 for n in (1, 8)}
    return {"rows": rows, "sum": image, "samples_per_second": speeds, **more}


def measured(size):
    """The same of what an H100 took, launch by launch; gaps are not in it."""
    with open(os.path.join(RESULTS, f"profile-{size}-operations.json"), encoding="utf-8") as file:
        profile = json.load(file)
    rows = {name: 0.0 for name, _ in ROWS}
    for one in profile["operations"]:
        for launch in one["launches"]:
            name = next(name for name, fits in ROWS if fits(one["kind"], one["pass"], launch["name"]))
            rows[name] += launch["usec"] / 1e3 if name in STEP else launch["usec"] / profile["grain"]
    grain_launches = sum(len(one["launches"]) for one in profile["operations"] if one["pass"] in ("forward", "backward"))
    return dict(finish(rows, profile["grain"], {"launches": grain_launches}), samples_per_second=profile["samples_per_second"])


def table():
    columns = []
    for size, grain in GRAINS.items():
        operations = list_operations(size)
        columns += [predict(operations, set(), grain), measured(size), predict(operations, DONE, grain)]
    lines = ["| us an image | 512², grain 32 | H100 | today | 256², grain 128 | H100 | today |", "|---|---|---|---|---|---|---|"]
    for name, _ in sorted(ROWS, key=lambda row: row[0] in STEP):
        if name == "update (ms a step)":
            lines.append("| " + " | ".join(["**sum**"] + [f"**{one['sum']:,.0f}**" for one in columns]) + " |")
        lines.append("| " + " | ".join([name] + [f"{one['rows'][name]:,.1f}" if name in STEP else f"{one['rows'][name]:,.0f}" for one in columns]) + " |")
    lines.append("| " + " | ".join(["launches a grain"] + [f"{one['launches']:,}" for one in columns]) + " |")
    lines.append("| " + " | ".join(["MB an image by own kernels"] + [f"{one['own_bytes'] / 1e6:,.0f}" if "own_bytes" in one else "" for one in columns]) + " |")
    for n in ("1", "8"):
        grains = "1 grain" if n == "1" else f"{n} grains"
        lines.append("| " + " | ".join([f"samples/s, {grains} a step"] + [f"{one['samples_per_second'][n]:,.0f}" for one in columns]) + " |")
    return "\n".join(lines)


def one_size(arguments):
    operations = list_operations(arguments.size)
    if arguments.operations:
        with open(arguments.operations, encoding="utf-8") as file:
            operations = [json.loads(line) for line in file]
    changes = {"none": set(), "all": set(CHANGES), "today": DONE}.get(arguments.changes, set(arguments.changes.split(",")))
    if changes - set(CHANGES):
        raise ValueError(f"no change {', '.join(sorted(changes - set(CHANGES)))}; there are {', '.join(CHANGES)}")
    print(json.dumps(predict(operations, changes, GRAINS[arguments.size]), indent=1))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", default=os.path.join(ROOT, "docs/figures.md"))
    parser.add_argument("--size", choices=sorted(GRAINS))
    parser.add_argument("--changes", default="today")
    parser.add_argument("--operations")
    arguments = parser.parse_args()
    if arguments.size:
        return one_size(arguments)
    with open(arguments.page, encoding="utf-8") as file:
        text = file.read()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{arguments.page} has no place for the table: {BEGIN} ... {END}")
    made = f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"
    if arguments.check:
        if made != text:
            print(f"{arguments.page} has another table: run ops/gpu_predict.py", file=sys.stderr)
        return int(made != text)
    with open(arguments.page, "w", encoding="utf-8") as file:
        file.write(made)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"gpu_predict: {error}", file=sys.stderr)
        sys.exit(1)
