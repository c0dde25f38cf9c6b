#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time of a picture in Pillow, in process: the peer of bench-pictures.

    pillow_pictures.py FILE [--resample bilinear|bicubic] [--side 256] [--steps 20] [--threads 1] [--paced]
    pillow_pictures.py FILE --save      draws it first: a JPEG of 1024 x 768, quality 85

A step is ten pictures. With --paced it says that it is ready; then each step waits for a line on standard input and prints its
milliseconds a picture.
"""
import argparse
import io
import json
import sys
import time

from PIL import Image, ImageFilter, __version__, features

WIDTH, HEIGHT, A_STEP = 1024, 768, 10


def save(path):
    """Soft noise over a ramp: about 110 kB, as a photograph has them."""
    bands = []
    for seed in range(3):
        noise = Image.effect_noise((WIDTH, HEIGHT), 90).filter(ImageFilter.GaussianBlur(1.2 + seed / 5))
        bands.append(Image.blend(noise, Image.linear_gradient("L").resize((WIDTH, HEIGHT)), 0.4))
    Image.merge("RGB", bands).save(path, "JPEG", quality=85)


def square(data, resample, side):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    width, height = image.size
    size = (side, int(side * height / width)) if width <= height else (int(side * width / height), side)
    image = image.resize(size, resample)
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    return image.crop((left, top, left + side, top + side)).tobytes()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("--resample", default="bilinear")
    p.add_argument("--side", type=int, default=256)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--paced", action="store_true")
    p.add_argument("--save", action="store_true")
    o = p.parse_args()
    if o.save:
        save(o.file)
        return
    with open(o.file, "rb") as file:
        data = file.read()
    resample, msec = Image.Resampling[o.resample.upper()], []
    for step in range(o.steps + 1):
        if step == 1 and o.paced:
            print("ready", flush=True)
        if step > 0 and o.paced:
            sys.stdin.readline()
        start = time.perf_counter()
        for _ in range(A_STEP):
            square(data, resample, o.side)
        msec.append(1e3 * (time.perf_counter() - start) / A_STEP)
        if step > 0 and o.paced:
            print(f"{msec[-1]:.3f}", flush=True)
    msec = sorted(msec[1:])  # the first warms up
    print(json.dumps({"figure": f"picture_{o.resample}_pillow", "value": round(msec[o.steps // 2], 3), "unit": "ms",
                      "min": round(msec[0], 3), "max": round(msec[-1], 3), "runs": o.steps, "pillow": __version__,
                      "libjpeg_turbo": features.version("libjpeg_turbo"), "bytes": len(data)}))


if __name__ == "__main__":
    main()
