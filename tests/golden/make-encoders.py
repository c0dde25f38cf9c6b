#!/usr/bin/env python3
"""Makes tests/golden/vae-*.safetensors, text-*.safetensors, tiny-encoders.safetensors and the model folder
tests/models/tiny-encoders: what Stable Diffusion 2's VAE and text encoder compute, in float64, for small random weights.

    python3 -m venv v && v/bin/pip install numpy==2.4.6 safetensors==0.8.0
    v/bin/python tests/golden/make-encoders.py

The networks are written down here once more, in numpy, from what diffusers' AutoencoderKL and transformers'
CLIPTextModel do; tests/interop/encoders.py compares the project with those libraries themselves.

vae-NAME:   weights/NAME; pixels [n][h][w][3] in [-1, 1]; moments [n][h / f][w / f][2 c]; latents [n][h / f][w / f][c]
            and decoded [n][h][w][3], what the decoder makes of them
text-NAME:  weights/NAME; ids [n][tokens]; hidden [n][tokens][dim]
tiny-encoders: for the model folder: bytes [n][64][64][3], ids [n][77], latents [n][4][8][8] (times scaling_factor), hidden
            [n][77][64], decoded [n][64][64][3] of those latents, before clamping
Configs are in the metadata. Weights and inputs are float32 numbers (halves in the folder's text encoder), results are
rounded to float32.
"""
import gzip
import importlib.metadata
import json
import math
import pathlib

import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "models/tiny-encoders"
MERGES = HERE.parents[1] / "encoders/tokenizer/bpe_simple_vocab_16e6.txt.gz"
N_MERGES = 510

# Between them: one to four levels, one and two layers, shortcuts with and without, sides that are odd inside, oblong ones,
# groups of one and more channels, and (two-levels) so small a variance that eps is seen.
VAES = {
    "one-level": dict(n=2, h=7, w=9, quiet=1.0, config=dict(block_out_channels=[6], layers_per_block=1, latent_channels=2,
                                                            norm_num_groups=3)),
    "two-levels": dict(n=2, h=10, w=6, quiet=0.003, config=dict(block_out_channels=[8, 12], layers_per_block=2, latent_channels=4,
                                                                norm_num_groups=4)),
    "three-levels": dict(n=1, h=20, w=28, quiet=1.0, config=dict(block_out_channels=[8, 16, 16], layers_per_block=1, latent_channels=3,
                                                                 norm_num_groups=8)),
    "four-levels": dict(n=2, h=24, w=40, quiet=1.0, config=dict(block_out_channels=[8, 8, 16, 16], layers_per_block=1, latent_channels=4,
                                                                norm_num_groups=4)),
}
TEXTS = {
    "one-layer": dict(n=3, config=dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                                       max_position_embeddings=5, vocab_size=20)),
    "two-layers": dict(n=2, config=dict(hidden_size=24, intermediate_size=96, num_hidden_layers=2, num_attention_heads=3,
                                        max_position_embeddings=9, vocab_size=60, layer_norm_eps=1e-3)),
    "three-layers": dict(n=2, config=dict(hidden_size=16, intermediate_size=64, num_hidden_layers=3, num_attention_heads=1,
                                          max_position_embeddings=77, vocab_size=40)),
}
TINY_VAE = dict(block_out_channels=[8, 16, 16, 16], layers_per_block=1, latent_channels=4, norm_num_groups=8)
TINY_TEXT = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                 max_position_embeddings=77, vocab_size=514 + N_MERGES)


def vae_config(config):
    levels = len(config["block_out_channels"])
    return dict(_class_name="AutoencoderKL", act_fn="silu", in_channels=3, out_channels=3, sample_size=64, scaling_factor=0.18215,
                down_block_types=["DownEncoderBlock2D"] * levels, up_block_types=["UpDecoderBlock2D"] * levels) | config


def text_config(config):
    return dict(architectures=["CLIPTextModel"], model_type="clip_text_model", hidden_act="gelu", layer_norm_eps=1e-5,
                attention_dropout=0.0, projection_dim=512, bos_token_id=0, eos_token_id=2, pad_token_id=1, torch_dtype="float32") | config


# ---- layers; activations are [n][c][h][w] ----

def conv(weights, name, x, stride=1, padding=((1, 1), (1, 1))):
    weight, bias = weights[name + ".weight"], weights[name + ".bias"]
    if weight.shape[2] == 1:
        padding = ((0, 0), (0, 0))
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True) + bias[:, None, None]


def linear(weights, name, x):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def group_norm(weights, name, x, groups, eps=1e-6):
    n, c, h, w = x.shape
    y = x.reshape(n, groups, -1)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + eps)
    return y.reshape(x.shape) * weights[name + ".weight"][:, None, None] + weights[name + ".bias"][:, None, None]


def layer_norm(weights, name, x, eps):
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return y * weights[name + ".weight"] + weights[name + ".bias"]


def silu(x):
    return x / (1.0 + np.exp(-x))


def gelu(x):
    return x / 2 * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- VAE ----

def resnet(weights, name, x, groups):
    h = conv(weights, name + ".conv1", silu(group_norm(weights, name + ".norm1", x, groups)))
    h = conv(weights, name + ".conv2", silu(group_norm(weights, name + ".norm2", h, groups)))
    return h + (conv(weights, name + ".conv_shortcut", x) if name + ".conv_shortcut.weight" in weights else x)


def mid_attention(weights, name, x, groups):
    n, c, h, w = x.shape
    tokens = group_norm(weights, name + ".group_norm", x, groups).reshape(n, c, h * w).transpose(0, 2, 1)
    q, k, v = (linear(weights, f"{name}.to_{part}", tokens) for part in "qkv")
    mixed = softmax(q @ k.transpose(0, 2, 1) / math.sqrt(c)) @ v
    return x + linear(weights, name + ".to_out.0", mixed).transpose(0, 2, 1).reshape(x.shape)


def mid_block(weights, part, x, groups):
    x = resnet(weights, part + ".mid_block.resnets.0", x, groups)
    x = mid_attention(weights, part + ".mid_block.attentions.0", x, groups)
    return resnet(weights, part + ".mid_block.resnets.1", x, groups)


def encode(config, weights, x):
    groups = config["norm_num_groups"]
    x = conv(weights, "encoder.conv_in", x)
    for level in range(len(config["block_out_channels"])):
        for i in range(config["layers_per_block"]):
            x = resnet(weights, f"encoder.down_blocks.{level}.resnets.{i}", x, groups)
        if level + 1 < len(config["block_out_channels"]):
            x = conv(weights, f"encoder.down_blocks.{level}.downsamplers.0.conv", x, stride=2, padding=((0, 1), (0, 1)))
    x = mid_block(weights, "encoder", x, groups)
    x = conv(weights, "encoder.conv_out", silu(group_norm(weights, "encoder.conv_norm_out", x, groups)))
    return conv(weights, "quant_conv", x)


def decode(config, weights, z):
    groups, levels = config["norm_num_groups"], len(config["block_out_channels"])
    x = conv(weights, "decoder.conv_in", conv(weights, "post_quant_conv", z))
    x = mid_block(weights, "decoder", x, groups)
    for block in range(levels):
        for i in range(config["layers_per_block"] + 1):
            x = resnet(weights, f"decoder.up_blocks.{block}.resnets.{i}", x, groups)
        if block + 1 < levels:
            x = conv(weights, f"decoder.up_blocks.{block}.upsamplers.0.conv", x.repeat(2, axis=2).repeat(2, axis=3))
    return conv(weights, "decoder.conv_out", silu(group_norm(weights, "decoder.conv_norm_out", x, groups)))


def vae_shapes(config):
    shapes = {}

    def add(name, *shape):
        shapes[name + ".weight"], shapes[name + ".bias"] = shape, shape[:1]

    def add_resnet(name, c_in, c_out):
        add(name + ".norm1", c_in)
        add(name + ".conv1", c_out, c_in, 3, 3)
        add(name + ".norm2", c_out)
        add(name + ".conv2", c_out, c_out, 3, 3)
        if c_in != c_out:
            add(name + ".conv_shortcut", c_out, c_in, 1, 1)

    def add_mid(part, c):
        for i in range(2):
            add_resnet(f"{part}.mid_block.resnets.{i}", c, c)
        add(f"{part}.mid_block.attentions.0.group_norm", c)
        for name in ("to_q", "to_k", "to_v", "to_out.0"):
            add(f"{part}.mid_block.attentions.0.{name}", c, c)

    channels, latent = config["block_out_channels"], config["latent_channels"]
    add("encoder.conv_in", channels[0], 3, 3, 3)
    before = channels[0]
    for level, c in enumerate(channels):
        for i in range(config["layers_per_block"]):
            add_resnet(f"encoder.down_blocks.{level}.resnets.{i}", before, c)
            before = c
        if level + 1 < len(channels):
            add(f"encoder.down_blocks.{level}.downsamplers.0.conv", c, c, 3, 3)
    add_mid("encoder", before)
    add("encoder.conv_norm_out", before)
    add("encoder.conv_out", 2 * latent, before, 3, 3)
    add("quant_conv", 2 * latent, 2 * latent, 1, 1)
    add("post_quant_conv", latent, latent, 1, 1)
    add("decoder.conv_in", before, latent, 3, 3)
    add_mid("decoder", before)
    for block, c in enumerate(reversed(channels)):
        for i in range(config["layers_per_block"] + 1):
            add_resnet(f"decoder.up_blocks.{block}.resnets.{i}", before, c)
            before = c
        if block + 1 < len(channels):
            add(f"decoder.up_blocks.{block}.upsamplers.0.conv", c, c, 3, 3)
    add("decoder.conv_norm_out", before)
    add("decoder.conv_out", 3, before, 3, 3)
    return shapes


# ---- text encoder ----

def attend(weights, name, x, heads):
    n, tokens, c = x.shape
    q, k, v = (linear(weights, f"{name}.{part}_proj", x).reshape(n, tokens, heads, c // heads).transpose(0, 2, 1, 3) for part in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(c // heads)
    scores = np.where(np.tril(np.ones((tokens, tokens), bool)), scores, -np.inf)
    return linear(weights, name + ".out_proj", (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape))


def read_text(config, weights, ids):
    eps = config["layer_norm_eps"]
    x = weights["text_model.embeddings.token_embedding.weight"][ids] + weights["text_model.embeddings.position_embedding.weight"]
    for i in range(config["num_hidden_layers"]):
        name = f"text_model.encoder.layers.{i}"
        x = x + attend(weights, name + ".self_attn", layer_norm(weights, name + ".layer_norm1", x, eps), config["num_attention_heads"])
        h = linear(weights, name + ".mlp.fc1", layer_norm(weights, name + ".layer_norm2", x, eps))
        x = x + linear(weights, name + ".mlp.fc2", gelu(h))
    return layer_norm(weights, "text_model.final_layer_norm", x, eps)


def text_shapes(config):
    c, f = config["hidden_size"], config["intermediate_size"]
    shapes = {"text_model.embeddings.token_embedding.weight": (config["vocab_size"], c),
              "text_model.embeddings.position_embedding.weight": (config["max_position_embeddings"], c)}
    for i in range(config["num_hidden_layers"]):
        name = f"text_model.encoder.layers.{i}"
        for part, shape in [*((f"self_attn.{p}_proj", (c, c)) for p in ("k", "v", "q", "out")), ("layer_norm1", (c,)),
                            ("mlp.fc1", (f, c)), ("mlp.fc2", (c, f)), ("layer_norm2", (c,))]:
            shapes[f"{name}.{part}.weight"], shapes[f"{name}.{part}.bias"] = shape, shape[:1]
    shapes["text_model.final_layer_norm.weight"] = shapes["text_model.final_layer_norm.bias"] = (c,)
    return shapes


# ---- files ----

def draw(shapes, rng, dtype=np.float32):
    """Norms, too, get something else than ones and zeros."""
    weights = {}
    for name, shape in shapes.items():
        bound = 0.3 if len(shape) == 1 else 1.0 if "embedding" in name else 1.0 / math.sqrt(np.prod(shape[1:]))
        base = 1.0 if len(shape) == 1 and name.endswith(".weight") else 0.0
        weights[name] = (base + rng.uniform(-bound, bound, shape)).astype(dtype)
    return weights


def wide(weights):
    return {name: w.astype(np.float64) for name, w in weights.items()}


def nchw(x):
    return x.astype(np.float64).transpose(0, 3, 1, 2)


def nhwc(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1), np.float32)


def save(name, out, **metadata):
    path = HERE / f"{name}.safetensors"
    save_file(out, path, metadata={key: json.dumps(value) for key, value in metadata.items()})
    print(f"{path.name}: {path.stat().st_size} bytes")


def make_vae(name, case):
    rng = np.random.default_rng(list(name.encode()))
    config = vae_config(case["config"])
    weights = draw(vae_shapes(config), rng)
    for part in ("encoder", "decoder"):
        for suffix in ("weight", "bias"):
            weights[f"{part}.conv_in.{suffix}"] *= np.float32(case["quiet"])
    pixels = rng.uniform(-1, 1, (case["n"], case["h"], case["w"], 3)).astype(np.float32)
    moments = encode(config, wide(weights), nchw(pixels))
    factor = 2 ** (len(config["block_out_channels"]) - 1)
    latents = rng.standard_normal((case["n"], case["h"] // factor, case["w"] // factor, config["latent_channels"])).astype(np.float32)
    out = {f"weights/{k}": w for k, w in weights.items()}
    out |= {"pixels": pixels, "moments": nhwc(moments), "latents": latents, "decoded": nhwc(decode(config, wide(weights), nchw(latents)))}
    save(f"vae-{name}", out, config=config)


def make_text(name, case):
    rng = np.random.default_rng(list(name.encode()))
    config = text_config(case["config"])
    weights = draw(text_shapes(config), rng)
    ids = rng.integers(0, config["vocab_size"], (case["n"], config["max_position_embeddings"])).astype(np.int32)
    ids[0, 0], ids[-1, -1] = 0, config["vocab_size"] - 1
    out = {f"weights/{k}": w for k, w in weights.items()}
    out |= {"ids": ids, "hidden": read_text(config, wide(weights), ids).astype(np.float32)}
    save(f"text-{name}", out, config=config)


def pictures(rng, n, side):
    """Slopes, discs and noise, one more of them in each picture: as different as pictures are."""
    y, x = np.mgrid[0:side, 0:side] / side
    made = []
    for i in range(n):
        a, b = rng.uniform(-1, 1, (2, 3)), rng.uniform(0.2, 0.8, 3)
        picture = 0.5 + 0.5 * (a[0] * (x[..., None] - 0.5) + a[1] * (y[..., None] - 0.5))
        for _ in range(i):
            center, radius = rng.uniform(0, 1, 2), rng.uniform(0.1, 0.5)
            picture[(x - center[0]) ** 2 + (y - center[1]) ** 2 < radius ** 2] = rng.uniform(0, 1, 3)
        picture += rng.uniform(-1, 1, picture.shape) * b * (0.1 if i % 2 else 0.0)
        made.append(np.clip(np.rint(picture * 255), 0, 255).astype(np.uint8))
    return np.stack(made)


def bytes_to_unicode():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in kept]
    return [chr(b) for b in kept] + [chr(256 + i) for i in range(len(rest))]


def make_tokenizer():
    folder = MODEL / "tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    merges = gzip.decompress(MERGES.read_bytes()).decode().split("\n")[1:1 + N_MERGES]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(line + "\n" for line in merges), encoding="utf-8")
    tokens = bytes_to_unicode()
    tokens += [token + "</w>" for token in tokens] + ["".join(line.split()) for line in merges] + ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    assert len(vocabulary) == TINY_TEXT["vocab_size"]
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False) + "\n", encoding="utf-8")
    specials = dict(bos_token="<|startoftext|>", eos_token="<|endoftext|>", unk_token="<|endoftext|>", pad_token="!")
    write_json(folder / "special_tokens_map.json", specials)
    write_json(folder / "tokenizer_config.json", dict(specials, tokenizer_class="CLIPTokenizer", model_max_length=77,
                                                      do_lower_case=True, errors="replace", add_prefix_space=False))


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def make_tiny():
    rng = np.random.default_rng(list(b"tiny-encoders"))
    vae, text = vae_config(TINY_VAE), text_config(TINY_TEXT)
    vae_weights, text_weights = draw(vae_shapes(vae), rng), draw(text_shapes(text), rng, np.float16)
    pixels = pictures(rng, 4, 64)
    # A random network's outputs stand anywhere; the shift by quant_conv's bias and the scale make latents of mean 0 and deviation 1.
    c = vae["latent_channels"]
    means = encode(vae, wide(vae_weights), nchw(pixels / 127.5 - 1))[:, :c]
    vae_weights["quant_conv.bias"][:c] -= means.mean((0, 2, 3)).astype(np.float32)
    means = encode(vae, wide(vae_weights), nchw(pixels / 127.5 - 1))[:, :c]
    vae["scaling_factor"] = float(f"{1.0 / means.std():.4g}")
    text["torch_dtype"] = "float16"
    write_json(MODEL / "vae/config.json", vae)
    write_json(MODEL / "text_encoder/config.json", text)
    save_file(vae_weights, MODEL / "vae/diffusion_pytorch_model.safetensors", metadata={"format": "pt"})
    save_file(text_weights, MODEL / "text_encoder/model.safetensors", metadata={"format": "pt"})
    make_tokenizer()
    latents = np.ascontiguousarray(means * vae["scaling_factor"], np.float32)
    ids = rng.integers(0, text["vocab_size"], (4, 77)).astype(np.int32)
    out = {"bytes": pixels, "ids": ids, "latents": latents, "hidden": read_text(text, wide(text_weights), ids).astype(np.float32),
           "decoded": nhwc(decode(vae, wide(vae_weights), latents / vae["scaling_factor"]))}
    save("tiny-encoders", out)
    size = sum(path.stat().st_size for path in MODEL.rglob("*") if path.is_file())
    print(f"{MODEL.name}: {size} bytes, scaling_factor {vae['scaling_factor']}, latents' deviation {latents.std():.3f}, "
          f"each picture's {latents.std((1, 2, 3)).round(3)}")


def main():
    for package, wanted in (("numpy", "2.4.6"), ("safetensors", "0.8.0")):
        found = importlib.metadata.version(package)
        if found != wanted:
            raise SystemExit(f"{package} {found} is installed, the golden files are made with {wanted}")
    for name, case in VAES.items():
        make_vae(name, case)
    for name, case in TEXTS.items():
        make_text(name, case)
    make_tiny()


if __name__ == "__main__":
    main()
