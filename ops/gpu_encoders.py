# SPDX-License-Identifier: Apache-2.0
"""The stage of ops/gpu that encodes: the same pictures and token ids by Stable Diffusion 2's encoders on the CPU and on the GPU,
in fp32, as sdprep has it, and in bf16; how far results are apart, and samples/s. Weights are random."""
import json
import math
import os
import random
import re
import struct
import tempfile
import time

# Of what apart() says; an fp32's is mostly that of rounding to halves.
TOLERANCES = {"f32": 2e-3, "bf16": 5e-2}
TEXT_MAX = 1 << 18
TOKENS, TEXT_WIDTH = 77, 1024
CONFIGS = {
    "vae": {"_class_name": "AutoencoderKL", "in_channels": 3, "out_channels": 3, "latent_channels": 4, "block_out_channels": [128, 256, 512, 512],
            "layers_per_block": 2, "down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4,
            "norm_num_groups": 32, "act_fn": "silu", "sample_size": 768, "scaling_factor": 0.18215},
    "text_encoder": {"architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "vocab_size": 49408, "hidden_size": TEXT_WIDTH,
                     "intermediate_size": 4096, "num_hidden_layers": 23, "num_attention_heads": 16, "max_position_embeddings": TOKENS,
                     "hidden_act": "gelu", "layer_norm_eps": 1e-5, "projection_dim": 512}}
FILES = {"vae": "diffusion_pytorch_model.safetensors", "text_encoder": "model.safetensors"}
PARAMETER = re.compile(r"^(\w+) (\S+) \[([\d, ]*)\]$", re.M)


def exponent(name, dims):
    """The binary exponent of a tensor's values, which are within a factor of two: what goes in comes out about as large."""
    if len(dims) == 1 or "embedding" in name:
        return -5
    fan_in, e = 1, 0
    for dim in dims[1:]:
        fan_in *= dim
    while 1.5 * 2.0 ** e > fan_in ** -0.5:
        e -= 1
    return e


def halves(rng, n, keep, put):
    """n random halves as bytes: of each the bits `keep` are drawn, and the bits `put` are set."""
    drawn = int.from_bytes(rng.randbytes(2 * n), "little") & int.from_bytes(struct.pack("<H", keep) * n, "little")
    return (drawn | int.from_bytes(struct.pack("<H", put) * n, "little")).to_bytes(2 * n, "little")


def values(rng, name, dims):
    """A tensor as halves: random signs and mantissas with one exponent; a norm's weights are 1 to 1.25."""
    n = 1
    for dim in dims:
        n *= dim
    norm = len(dims) == 1 and name.endswith(".weight")
    keep, put = (0x00FF, 0x3C00) if norm else (0x83FF, (exponent(name, dims) + 15) << 10)
    return halves(rng, n, keep, put)


def write_model(folder, parameters):
    """A diffusers folder of the encoders, in fp16; parameters: lines `vae|text_encoder name [dims]`."""
    rng = random.Random(17)
    for part, config in CONFIGS.items():
        tensors = [(name, [int(dim) for dim in dims.split(",")]) for of, name, dims in PARAMETER.findall(parameters)
                   if of == part and not re.match(r"decoder\.|post_quant_conv\.", name)]
        header, at = {}, 0
        for name, dims in tensors:
            n = 2
            for dim in dims:
                n *= dim
            header[name] = {"dtype": "F16", "shape": dims, "data_offsets": [at, at + n]}
            at += n
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        os.makedirs(os.path.join(folder, part))
        with open(os.path.join(folder, part, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        with open(os.path.join(folder, part, FILES[part]), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name, dims in tensors:
                file.write(values(rng, name, dims))


def apart(found, wanted):
    """(The largest difference beside the largest value, the norm of all differences beside the norm of all values); 1 where results
    cannot be compared."""
    if len(found) != len(wanted) or not found:
        return 1.0, 1.0
    a, b = (struct.unpack(f"<{len(halves) // 2}e", halves) for halves in (found, wanted))
    differences, norm = [abs(x - y) for x, y in zip(a, b)], math.sqrt(sum(y * y for y in b))
    if norm == 0 or not math.isfinite(norm + sum(differences)):
        return 1.0, 1.0
    return max(differences) / max(map(abs, b)), math.sqrt(sum(d * d for d in differences)) / norm


class Encoders:
    """Of one run of ops/gpu: call(command, seconds, **environment) is its."""

    def __init__(self, call, root, emulated):
        self.call, self.root, self.emulated = call, root, emulated

    def write_batch(self, path, side, batch):
        rng = random.Random(side)
        vocabulary = 1024 if self.emulated else CONFIGS["text_encoder"]["vocab_size"]
        with open(path, "wb") as file:
            file.write(rng.randbytes(batch * side * side * 3))
            file.write(struct.pack(f"<{batch * TOKENS}i", *(rng.randrange(vocabulary) for _ in range(batch * TOKENS))))

    def encode(self, seconds, model, batch_of, out, *arguments, **more):
        """One run of bench-encoder: (its results, milliseconds a batch or None); or a text that says why there are none."""
        side, batch, path = batch_of
        code, text, said = self.call([os.path.join(self.root, "bin/bench-encoder"), "--model", model, "--side", str(side), "--batch", str(batch),
                                      "--write", f"{path}:{out}", *arguments], seconds, **more)
        if code != 0:
            return None, f"{' '.join(arguments)}: exit code {code}: {said}{text}"[-TEXT_MAX:]
        with open(out, "rb") as file:
            return file.read(), json.loads(text)["value"] if text.strip() else None

    def kinds(self):
        """{type: (arguments, environment)}. Real libraries want a real GPU."""
        without = self.emulated and "SDTRAIN_CUDA_LIBRARIES" not in os.environ
        timed = ["--device", "cuda", "--steps", "1" if self.emulated else "5"]
        none = {"SDTRAIN_CUDA_PLANS": "/nonexistent"}
        return {"f32": (timed, none), "bf16": ([*timed, "--bf16"], none) if without else ([*timed, "--bf16", "--tune"], {"SDTRAIN_CUDA_TUNE_SEC": "30"})}

    def encoded(self, seconds):
        """A batch of 256^2 and one of 512^2, by the CPU and by the GPU."""
        deadline, result, notes = time.monotonic() + seconds, {"passed": True}, []
        left = lambda: max(deadline - time.monotonic(), 1)  # noqa: E731
        with tempfile.TemporaryDirectory(prefix="sdtrain-gpu-") as folder:
            model, parameters = os.path.join(folder, "model"), os.path.join(self.root, "tests/golden/sd2-encoders-parameters.txt")
            if self.emulated:
                model = os.path.join(self.root, "tests/models/tiny-encoders")
            else:
                with open(parameters, encoding="utf-8") as file:
                    write_model(model, file.read())
            for side, batch in ((64, 3), (72, 1)) if self.emulated else ((256, 16), (512, 4)):
                path, out = os.path.join(folder, "batch"), os.path.join(folder, "out")
                self.write_batch(path, side, batch)
                wanted, why = self.encode(left(), model, (side, batch, path), out, "--threads", str(min(os.cpu_count() or 1, 64)))
                if wanted is None:
                    return dict(result, passed=False, side=side, text=why)
                n_latents = 2 * batch * 4 * (side // 8) ** 2
                for kind, (arguments, more) in self.kinds().items():
                    found, msec = self.encode(left(), model, (side, batch, path), out, *arguments, **more)
                    if found is None:
                        return dict(result, passed=False, side=side, kind=kind, text=msec)
                    one = {"batch": batch, "msec": msec, "samples_per_second": round(batch / msec * 1e3, 2),
                           "latents": apart(found[:n_latents], wanted[:n_latents]), "text": apart(found[n_latents:], wanted[n_latents:])}
                    worst = max(*one["latents"], *one["text"])
                    one["right"] = worst <= TOLERANCES[kind]
                    result[f"{side} {kind}"] = one
                    result["passed"] = result["passed"] and one["right"]
                    notes.append(f"{side}^2 {kind}: {one['samples_per_second']:.1f} samples/s, {worst:.1e} apart")
        return dict(result, note="; ".join(notes))
