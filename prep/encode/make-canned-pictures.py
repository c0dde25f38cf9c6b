#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes canned-pictures.inc, the pictures that tell decoders apart, of files in tests/golden/pictures. Their bytes are a part of each
encoding's numerics: they are never made anew, and a file that changes there does not change here.

usage: make-canned-pictures.py > canned-pictures.inc
"""
import pathlib
import textwrap

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/pictures"
NAMES = ["420.jpg", "422.jpg", "440.jpg", "444.jpg", "grey.jpg", "progressive.jpg", "progressive-440.jpg", "restart.jpg", "orientation-6.jpg",
         "cmyk.jpg", "palette-holes.png", "interlaced-grey.png", "grey-alpha.png", "grey-16.png", "lossy-rgb.webp", "lossy-rgba.webp",
         "lossless-rgb.webp", "lossless-palette.webp"]

print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* canned-pictures.inc - made by make-canned-pictures.py, once. */")
for name in NAMES:
    identifier = "picture_" + name.replace("-", "_").replace(".", "_")
    data = (FOLDER / name).read_bytes()
    print("\nstatic const uint8_t %s[%d] = {" % (identifier, len(data)))
    print(textwrap.fill(",".join(map(str, data)).replace(",", ", "), 130, initial_indent="    ", subsequent_indent="    ").replace(", ", ","))
    print("};")
print("\nstatic const CannedPicture pictures[%d] = {" % len(NAMES))
for name in NAMES:
    identifier = "picture_" + name.replace("-", "_").replace(".", "_")
    print('    {"%s", %s, sizeof(%s)},' % (name, identifier, identifier))
print("};")
