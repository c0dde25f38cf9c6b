#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decodes and resizes pictures with picture-rgb and with Pillow, and compares every byte.

    tests/interop/compare-pictures.py [--bin DIR] [--sizes N]

Each size from 1 to N is the longer side of one picture. Its other side and its target are drawn from a seed, so that pictures
go up and down, and results are 1 to 2,000 wide. PNG of RGB and grey, JPEG of RGB by each sampling, of grey and of CMYK,
progressive or not, and WebP, lossy and lossless, take turns. Each picture is resized bilinear and bicubic.
"""
import argparse
import io
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image, __version__

RESAMPLE = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
KINDS = [("png", "RGB", {"compress_level": 0}), ("png", "L", {"compress_level": 0}),
         ("jpeg", "RGB", {"quality": 90, "subsampling": 2}), ("png", "RGB", {"compress_level": 1}),
         ("jpeg", "CMYK", {"quality": 80}), ("jpeg", "RGB", {"quality": 60, "subsampling": 0, "progressive": True}),
         ("webp", "RGB", {"quality": 80, "method": 0}), ("jpeg", "L", {"quality": 75}),
         ("jpeg", "RGB", {"quality": 95, "subsampling": 1}), ("webp", "RGB", {"lossless": True, "method": 0}),
         ("jpeg", "CMYK", {"quality": 95, "progressive": True})]


def drawn(rng, width, height, mode):
    """Noise over ramps and edges, so that neither pass of a resize has it easy."""
    y, x = np.mgrid[0:height, 0:width]
    channels = len(Image.new(mode, (1, 1)).getbands())
    planes = [(x * rng.randint(0, 900) // max(1, width) + y * rng.randint(0, 900) // max(1, height) +
               ((x // rng.randint(1, 40) + y // rng.randint(1, 40)) & 1) * rng.randint(0, 255)) & 255 for _ in range(channels)]
    noise = np.random.default_rng(rng.randrange(2 ** 32)).integers(0, rng.randint(2, 256), (height, width, channels))
    pixels = ((np.stack(planes, -1) + noise) & 255).astype(np.uint8)
    return Image.fromarray(pixels if channels > 1 else pixels[..., 0], mode)


def square(image, resample, side):
    """The shorter side becomes `side`, the longer one in proportion; then the middle."""
    width, height = image.size
    size = (side, int(side * height / width)) if width <= height else (int(side * width / height), side)
    image = image.resize(size, RESAMPLE[resample])
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    return image.crop((left, top, left + side, top + side)).tobytes()


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def square(self, path, resample, side):
        self.process.stdin.write(f"{resample} {side} {path}\n".encode())
        self.process.stdin.flush()
        line = self.process.stdout.readline().decode()
        return self.process.stdout.read(side * side * 3) if line.startswith("fine") else line.strip() or "no answer"


def log_uniform(rng, low, high):
    return min(high, max(low, round(low * (high / low) ** rng.random())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--sizes", type=int, default=2000)
    options = parser.parse_args()
    rng = random.Random(20)
    ours = Ours(os.path.join(options.bin, "picture-rgb"))
    n, wrong, ups, kinds = 0, 0, 0, {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "picture")
        for size in range(1, options.sizes + 1):
            other = max(1, round(size / log_uniform(rng, 1, 8)))
            width, height = (size, other) if rng.random() < 0.5 else (other, size)
            side = log_uniform(rng, 1, max(1, 2000 * other // size))
            kind, mode, how = KINDS[size % len(KINDS)]
            file = io.BytesIO()
            drawn(rng, width, height, mode).save(file, kind, **how)
            with open(path, "wb") as to:
                to.write(file.getvalue())
            image = Image.open(file).convert("RGB")
            for resample in RESAMPLE:
                expected, found = square(image, resample, side), ours.square(path, resample, side)
                n += 1
                ups += side > other
                name = f"{kind} {mode}"
                kinds[name] = kinds.get(name, 0) + 1
                if found != expected:
                    wrong += 1
                    print(f"{kind} {mode} {how}, {width} x {height} to {side}, {resample}: " + (
                        found if isinstance(found, str) else "%d of %d bytes differ" % (
                            sum(a != b for a, b in zip(found, expected)), len(expected))))
            if size % 200 == 0:
                print(f"{n} pictures, {wrong} differ", file=sys.stderr, flush=True)
    print(f"{n} pictures of 1 to {options.sizes}, {ups} of them up, as Pillow {__version__} has them but for {wrong}: " +
          ", ".join(f"{k} {name}" for name, k in sorted(kinds.items())))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
