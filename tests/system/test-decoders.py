#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The decoder processes of sdprep encode: pictures that kill or hang them, once and twice; any number of them; their end; and every kind of bad
picture."""
import os
import re
import signal
import struct
import subprocess
import unittest
import zlib

from encoded import SDPREP, EncodeCase, rejects, samples, tree, write_tar
from lab import BIN, SOURCE, until

GOLDEN = os.path.join(SOURCE, "tests/golden/pictures")


def as_png(pixels, side):
    rows = b"".join(b"\0" + pixels[y * side * 3:(y + 1) * side * 3] for y in range(side))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Decoders(EncodeCase):
    def deadly(self, tar):
        """A picture of the tar, which no other one has the bytes of: its key and its point."""
        sizes = [len(picture) for picture in self.pictures]
        first, last = ((0, 7), None, (14, 20))[tar]
        i = next(i for i in range(first + 1, last) if sizes.count(sizes[i]) == 1)
        return "%09d" % i, "pictures.decode.%d" % sizes[i]

    def open_part(self, out, faults, why, *keys):
        """The run ends with 1 and names the keys; parts without them are there, and whoever starts again ends it."""
        code, text = self.encode(self.recipe, out, "--decoders", "2", fault=faults)
        self.assertEqual(code, 1, text)
        self.assertEqual(re.findall(r'killed a decoder twice: "(\d+)"', text), sorted(keys))
        self.assertIn(why, text)
        parts = {"u0000%d-p%04d.mds" % ((0, int(key) // 5) if int(key) < 13 else (2, (int(key) - 14) // 5)) for key in keys}
        shards = {name for name in self.reference if name.endswith(".mds")}
        self.assertEqual({name for name in tree(out) if name.endswith(".mds")}, shards - parts)
        code, text = self.encode(self.recipe, out)
        self.assertEqual(code, 0, text)
        self.check(out, faults)

    def test_picture_kills(self):
        (key, point), (other, second) = self.deadly(0), self.deadly(2)
        out = self.lab.path("kills")
        self.open_part(out, "%s=kill@*,%s=kill@*" % (point, second), "the pictures of 2 samples", key, other)
        # Named it is left out, and is not even decoded.
        out = self.lab.path("named")
        code, text = self.encode(self.recipe, out, "--reject", key, fault=point + "=kill@*")
        self.assertEqual(code, 0, text)
        self.assertIn((key, "named"), rejects(out))
        # sdprep check finds it, too, and says of the others what it says without it.
        command = [SDPREP, "check", "--recipe", self.recipe, "--in", self.lab.path("raw")]
        code, text = self.lab.run(*command, fault=point + "=kill@*")
        self.assertEqual(code, 1, text)
        self.assertIn('"%s"' % key, text)
        for line in self.lab.run(*command)[1].splitlines():
            if line.startswith("{"):
                self.assertIn(line, text)

    def test_picture_hangs(self):
        key, point = self.deadly(2)
        self.open_part(self.lab.path("hangs"), "pictures.patience=eio,%s=stall@*" % point, "the pictures of 1 samples", key)

    def test_tried_again(self):
        """Each process dies at its seventh picture, wants memory, or breaks the protocol: nobody sees it."""
        for action in ("kill", "enomem", "eio"):
            out = self.lab.path("again", action)
            code, text = self.encode(self.recipe, out, "--decoders", "2", fault="pictures.decode=%s@7" % action)
            self.assertEqual(code, 0, text)
            self.check(out, action)

    def test_numbers(self):
        for n in (1, 3, 9):
            out = self.lab.path("numbers", str(n))
            code, text = self.encode(self.recipe, out, "--decoders", str(n))
            self.assertEqual(code, 0, text)
            self.check(out, "%d decoders" % n)
        for n in ("0", "65", "-1", "two"):
            self.assertEqual(self.encode(self.recipe, self.lab.path("none"), "--decoders", n)[0], 2, n)

    def test_kernel_without_seccomp(self):
        out = self.lab.path("limits")
        code, text = self.encode(self.recipe, out, "--decoders", "3", fault="pictures.filter=eio")
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("seccomp"), 1, text)
        self.check(out, "limits alone")

    def test_bad_pictures(self):
        """Each is a row of rejects with its reason, or the right picture: what picture-rgb says in process, which
        test-picture-decode compares with Pillow."""
        def golden(name):
            with open(os.path.join(GOLDEN, name), "rb") as file:
                return file.read()

        def sized(data, at, size):
            return data[:at] + size + data[at + len(size):]

        small, rgb, apng, scans = golden("420.jpg"), golden("rgb.png"), golden("one-frame.png"), golden("progressive-grey.jpg")
        huge = sized(rgb, 16, struct.pack(">II", 60000, 60000))
        huge = sized(huge, 29, struct.pack(">I", zlib.crc32(huge[12:29])))
        frames = apng.index(b"acTL")
        moving = sized(apng, frames + 4, struct.pack(">I", 2))
        moving = sized(moving, frames + 12, struct.pack(">I", zlib.crc32(moving[frames:frames + 12])))
        first = scans.index(b"\xff\xda")
        second = re.compile(b"\xff[^\x00]", re.S).search(scans, first + 2).start()
        frame = b"\x21\xf9\x04\0\x0a\0\0\0" + b"\x2c\0\0\0\0\1\0\1\0\0" + b"\2\2D\1\0"
        gif = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff" + frame * 2 + b";"
        bad = [("a-empty.jpg", b"", "empty"), ("b-text.jpg", b"a text, no picture\n", "decode"),
               ("c-half.jpg", small[:len(small) // 2], "truncated"), ("d-half.png", rgb[:len(rgb) // 2], "truncated"),
               ("e-half.webp", golden("lossy-rgb.webp")[:300], "truncated"), ("f-huge.png", huge, "too-large"),
               ("g-huge.jpg", sized(small, small.index(b"\xff\xc0") + 5, struct.pack(">HH", 60000, 60000)), "too-large"),
               ("h-moving.png", moving, "animated"), ("i-moving.webp", golden("animated.webp"), "animated"),
               ("j-moving.jpg", gif, "decode"),
               ("k-scans.jpg", scans[:second] + scans[first:second] * 1000 + scans[second:], "decode")]
        good = [("l-one.png", golden("one.png")), ("m-cmyk.jpg", golden("cmyk.jpg")),
                ("n-cmyk.jpg", golden("progressive-cmyk.jpg")), ("o-alpha.png", golden("alpha-0.png")),
                ("p-holes.png", golden("palette-holes.png")), ("q-named.png", small), ("r-named.webp", rgb),
                ("s-named.jpg", golden("lossy-rgb.webp")), ("t-named.jpeg", golden("palette-4.png"))]
        good += [("u-turned-%d.jpg" % i, golden("orientation-%d.jpg" % i)) for i in range(1, 9)]
        members, right = [], []
        for name, data, *_ in bad + good:
            members += [(name, data), (name.split(".")[0] + ".txt", b"c")]
        for name, data in good:
            path = self.lab.path("picture")
            with open(path, "wb") as file:
                file.write(data)
            answer = subprocess.run([os.path.join(BIN, "picture-rgb")], input=b"bilinear 64 %s\n" % path.encode(),
                                    stdout=subprocess.PIPE, check=True).stdout
            self.assertTrue(answer.startswith(b"fine"), (name, answer[:80]))
            pixels = answer[answer.index(b"\n") + 1:]
            self.assertEqual(len(pixels), 64 * 64 * 3)
            key = name.split(".")[0]
            right += [(key + ".png", as_png(pixels, 64)), (key + ".txt", b"c")]
        recipe = self.write_recipe("bad", max_rejected=1)
        for name, tar in (("bad", members), ("right", right)):
            write_tar(self.lab.path(name, "0.tar"), tar)
            code, text = self.encode(recipe, self.lab.path(name + "-out"), "--decoders", "2", source=self.lab.path(name))
            self.assertEqual(code, 0, text)
        self.assertEqual(rejects(self.lab.path("bad-out")), [(name.split(".")[0], reason) for name, _, reason in bad])
        rows, wanted = samples(self.lab.path("bad-out")), samples(self.lab.path("right-out"))
        self.assertEqual([row["key"].decode() for row in rows], [name.split(".")[0] for name, _ in good])
        for row, other in zip(rows, wanted):
            self.assertEqual(row, other, row["key"])

    def test_end_with_their_parent(self):
        def decoders(pid):
            with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
                return [int(child) for child in file.read().split()]

        life = self.start(self.lab.path("orphans"), "pictures.decode=stall@*", "--decoders", "3")
        until(lambda: len(decoders(life.pid)) == 3, "three decoder processes")
        children = decoders(life.pid)
        life.send_signal(signal.SIGKILL)
        self.assertEqual(self.end(life)[0], -signal.SIGKILL)
        until(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in children), "the end of decoder processes")


if __name__ == "__main__":
    unittest.main(verbosity=2)
