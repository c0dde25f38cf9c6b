#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/pictures/: small picture files of every kind, and the bytes that Pillow makes of them.

    pip install -r tests/golden/requirements-pictures.txt        and Debian's libjpeg-turbo-progs
    tests/golden/make-pictures.py tests/golden/pictures

The files are drawn here, from formulas. expected.txt has a line for each result, "file resample side"; expected.bin has
their bytes, side x side x 3 each, in the same order. Where Pillow's way is not ours (docs/internals/pictures.md lists
that), the script says so by what it hands to Pillow: 16-bit samples as their high bytes, and alpha composed on white by
Image.alpha_composite().
"""
import io
import pathlib
import struct
import subprocess
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps

RESAMPLE = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def scene(width, height, channels, depth=8):
    """Ramps, an edge, a disc and something like noise, at 16 bits, then cut to depth bits."""
    y, x = np.mgrid[0:height, 0:width].astype(np.int64)
    planes = []
    for c in range(channels):
        ramp = (x * (c + 1) * 65535 // max(1, width * (c + 1)) + y * 131 * (3 - c)) & 65535
        noise = ((x * 7919 + y * 104729 + c * 1299709) * 2654435761 >> 13) & 65535
        disc = ((x - width // 2) ** 2 + (y - height // 3) ** 2) < (min(width, height) // 4 + 1) ** 2
        edge = (x + c * 5 > width * 2 // 3) & (y % 11 < 6)
        planes.append(np.where(disc, 65535 - ramp, np.where(edge, noise, (3 * ramp + noise) // 4)))
    return (np.stack(planes, -1) >> (16 - depth)).astype(np.uint16)


def square(image, resample, side):
    """What picture_decode() is to give of an upright RGB picture."""
    width, height = image.size
    if width <= height:
        size = side, int(side * height / width)
    else:
        size = int(side * width / height), side
    image = image.resize(size, RESAMPLE[resample])
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    return image.crop((left, top, left + side, top + side)).tobytes()


def upright_rgb(image):
    """Orientation applied, alpha on white, as RGB."""
    image = ImageOps.exif_transpose(image)
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def exif(orientation, order=">"):
    head = b"MM\0*" if order == ">" else b"II*\0"
    return head + struct.pack(order + "IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def png(samples, colour, depth, *chunks, interlaced=False, before_end=()):
    """samples: height x width x channels, integers of `depth` bits."""
    height, width, channels = samples.shape
    assert channels == CHANNELS[colour]

    def rows(part):
        out = b""
        for number, row in enumerate(part):
            flat = row.reshape(-1)
            if depth == 16:
                raw = flat.astype(">u2").tobytes()
            elif depth == 8:
                raw = flat.astype(np.uint8).tobytes()
            else:
                bits = "".join(f"{v:0{depth}b}" for v in flat)
                bits += "0" * (-len(bits) % 8)
                raw = int(bits, 2).to_bytes(len(bits) // 8, "big")
            if number % 2 == 0:
                out += b"\0" + raw
            else:
                step = max(1, channels * depth // 8)
                out += b"\1" + bytes((v - (raw[i - step] if i >= step else 0)) & 255 for i, v in enumerate(raw))
        return out

    if interlaced:
        parts = [samples[y::dy, x::dx] for x, y, dx, dy in PASSES]
        data = b"".join(rows(part) for part in parts if part.size)
    else:
        data = rows(samples)

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))
    for name, body in chunks:
        out += chunk(name, body)
    packed = zlib.compress(data, 9)
    half = len(packed) // 2
    out += chunk(b"IDAT", packed[:half]) + chunk(b"IDAT", packed[half:])
    for name, body in before_end:
        out += chunk(name, body)
    return out + chunk(b"IEND", b"")


def picture_of(samples):
    """8-bit samples as Pillow's image."""
    samples = samples.astype(np.uint8)
    modes = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
    return Image.fromarray(samples[..., 0] if samples.shape[2] == 1 else samples, modes[samples.shape[2]])


class Writer:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lines, self.bytes = [], b""

    def add(self, name, data, image=None, sides=(16,), resamples=("bilinear", "bicubic")):
        """image: what the file shows, where it is not what Pillow's own decoder gives."""
        path = self.folder / name
        path.write_bytes(data)
        image = upright_rgb(image or Image.open(path))
        for side in sides:
            for resample in resamples:
                self.lines.append(f"{name} {resample} {side}")
                self.bytes += square(image, resample, side)

    def finish(self):
        (self.folder / "expected.txt").write_text("\n".join(self.lines) + "\n")
        (self.folder / "expected.bin").write_bytes(self.bytes)


def add_pngs(writer):
    rgb = scene(45, 31, 3)
    writer.add("rgb.png", png(rgb, 2, 8), sides=(1, 7, 24, 31, 64))
    writer.add("tall.png", png(scene(23, 61, 3), 2, 8), sides=(16, 23, 24))
    writer.add("narrow.png", png(scene(2, 190, 3), 2, 8), sides=(2, 9))
    # Neither side of what it is scaled to fits an array.
    writer.add("line.png", png(scene(1, 60000, 1, 1), 0, 1))
    writer.add("one.png", png(scene(1, 1, 3), 2, 8), sides=(1, 8))
    for depth in (1, 2, 4, 8):
        writer.add(f"grey-{depth}.png", png(scene(45, 31, 1, depth), 0, depth))
    palette = scene(16, 1, 3).astype(np.uint8).tobytes()
    for depth in (1, 2, 4, 8):
        indices = scene(45, 31, 1, min(depth, 4))
        writer.add(f"palette-{depth}.png", png(indices, 3, depth, (b"PLTE", palette[: 3 * min(16, 1 << depth)])))
    writer.add("palette-holes.png",
               png(scene(45, 31, 1, 4), 3, 4, (b"PLTE", palette), (b"tRNS", bytes([0, 40, 255, 128, 0]))))
    writer.add("rgba.png", png(scene(45, 31, 4), 6, 8))
    writer.add("grey-alpha.png", png(scene(45, 31, 2), 4, 8))
    clear = scene(45, 31, 4)
    clear[..., 3] = 0
    writer.add("alpha-0.png", png(clear, 6, 8))
    grey = scene(45, 31, 1)
    writer.add("grey-hole.png", png(grey, 0, 8, (b"tRNS", struct.pack(">H", int(grey[3, 4, 0])))))
    holes = rgb.copy()
    holes[5:12, 3:20] = (10, 200, 30)
    writer.add("rgb-hole.png", png(holes, 2, 8, (b"tRNS", struct.pack(">HHH", 10, 200, 30))))
    for name, colour, channels in (("grey", 0, 1), ("rgb", 2, 3), ("grey-alpha", 4, 2), ("rgba", 6, 4)):
        deep = scene(45, 31, channels, 16)
        writer.add(f"{name}-16.png", png(deep, colour, 16), picture_of(deep >> 8))
    # A colour that differs from the hole in its low bytes alone stays.
    deep = scene(45, 31, 3, 16)
    deep[5:12, 3:20] = (0x1234, 0x5678, 0x9ABC)
    deep[5:12, 20:30] = (0x1234, 0x5678, 0x9ABD)
    seen = np.concatenate([deep >> 8, np.full((31, 45, 1), 255, np.uint16)], -1)
    seen[5:12, 3:20, 3] = 0
    writer.add("rgb-hole-16.png", png(deep, 2, 16, (b"tRNS", struct.pack(">HHH", 0x1234, 0x5678, 0x9ABC))),
               picture_of(seen))
    for name, colour, channels, depth in (("rgb", 2, 3, 8), ("grey", 0, 1, 2), ("rgba", 6, 4, 8)):
        writer.add(f"interlaced-{name}.png", png(scene(45, 31, channels, depth), colour, depth, interlaced=True))
    writer.add("interlaced-small.png", png(scene(3, 2, 3), 2, 8, interlaced=True), sides=(5,))
    writer.add("orientation-6.png", png(rgb, 2, 8, (b"eXIf", exif(6))))
    writer.add("orientation-7-late.png", png(rgb, 2, 8, before_end=[(b"eXIf", exif(7, "<"))]))
    # Gamma, a profile and text change no pixel.
    writer.add("gamma.png", png(rgb, 2, 8, (b"gAMA", struct.pack(">I", 100000)), (b"tEXt", b"Comment\0" + b"x" * 99)))
    # One frame is not an animation.
    writer.add("one-frame.png", png(rgb, 2, 8, (b"acTL", struct.pack(">II", 1, 0))))


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def cjpeg(image, *options):
    """What Pillow cannot write, by Debian's libjpeg-turbo-progs."""
    return subprocess.run(["cjpeg", *options], input=saved(image, "PPM"), capture_output=True, check=True).stdout


def adobe(data, transform):
    """The same JPEG with an Adobe segment in place of JFIF's, or with another transform in the one that it has."""
    at = data.find(b"Adobe\0")
    if at >= 0:
        return data[: at + 11] + bytes([transform]) + data[at + 12 :]
    length = struct.unpack(">H", data[4:6])[0]
    return data[:2] + b"\xff\xee\0\x0eAdobe\0d\0\0\0\0" + bytes([transform]) + data[4 + length :]


def add_jpegs(writer):
    rgb = picture_of(scene(61, 43, 3))
    for name, subsampling in (("444", "4:4:4"), ("422", "4:2:2"), ("420", "4:2:0")):
        writer.add(f"{name}.jpg", saved(rgb, "JPEG", quality=85, subsampling=subsampling))
    writer.add("440.jpg", cjpeg(rgb, "-quality", "85", "-sample", "1x2"))
    writer.add("411.jpg", cjpeg(rgb, "-quality", "85", "-sample", "4x1"))
    writer.add("coarse.jpg", saved(rgb, "JPEG", quality=30))
    writer.add("restart.jpg", cjpeg(rgb, "-restart", "2B"))
    writer.add("arithmetic.jpg", cjpeg(rgb, "-arithmetic"))
    writer.add("progressive.jpg", saved(rgb, "JPEG", quality=85, progressive=True))
    writer.add("progressive-440.jpg", cjpeg(rgb, "-progressive", "-sample", "1x2"))
    writer.add("grey.jpg", saved(rgb.convert("L"), "JPEG"))
    writer.add("progressive-grey.jpg", saved(rgb.convert("L"), "JPEG", progressive=True))
    cmyk = Image.fromarray(scene(61, 43, 4).astype(np.uint8), "CMYK")
    for name, options in (("cmyk", {}), ("progressive-cmyk", {"progressive": True})):
        data = saved(cmyk, "JPEG", quality=90, **options)
        writer.add(f"{name}.jpg", data)
        writer.add(f"{name.replace('cmyk', 'ycck')}.jpg", adobe(data, 2))
    data = saved(cmyk, "JPEG", quality=90)
    at = data.find(b"\xff\xee")
    writer.add("cmyk-plain.jpg", data[:at] + data[at + 16 :])
    writer.add("rgb.jpg", adobe(saved(rgb, "JPEG", subsampling="4:4:4"), 0))
    writer.add("large.jpg", saved(picture_of(scene(170, 130, 3)), "JPEG", quality=60), sides=(33, 50))
    for orientation in range(1, 9):
        block = b"Exif\0\0" + exif(orientation, "<" if orientation % 2 else ">")
        writer.add(f"orientation-{orientation}.jpg", saved(rgb, "JPEG", exif=block), resamples=("bilinear",))
    writer.add("orientation-9.jpg", saved(rgb, "JPEG", exif=b"Exif\0\0" + exif(9)), resamples=("bilinear",))


def add_webps(writer):
    rgb, rgba = picture_of(scene(61, 43, 3)), picture_of(scene(61, 43, 4))
    for name, image in (("rgb", rgb), ("rgba", rgba)):
        writer.add(f"lossy-{name}.webp", saved(image, "WEBP", quality=80))
        writer.add(f"lossless-{name}.webp", saved(image, "WEBP", lossless=True))
    writer.add("lossless-palette.webp", saved(rgb.quantize(7).convert("RGB"), "WEBP", lossless=True))
    writer.add("orientation-8.webp", saved(rgb, "WEBP", exif=b"Exif\0\0" + exif(8)))
    writer.add("orientation-5.webp", saved(rgba, "WEBP", lossless=True, exif=exif(5, "<")))
    # For a verdict alone.
    frames = saved(rgb, "WEBP", save_all=True, append_images=[picture_of(scene(61, 43, 3)[::-1])])
    (writer.folder / "animated.webp").write_bytes(frames)


def main():
    writer = Writer(sys.argv[1])
    add_pngs(writer)
    add_jpegs(writer)
    add_webps(writer)
    writer.finish()


main()
