#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forty damaged inputs: what sdprep encode kept and what it says is lost are the whole input, in units, samples, members and
bytes. Each input is three tars, the middle one damaged; what is in it is counted here by another walk."""
import gzip
import io
import json
import os
import random
import re
import subprocess
import tarfile
import unittest
import zipfile

from encoded import SDPREP, EncodeCase, rejects, samples, tree

BLOCK = 512
N = 6  # samples of a tar


def members_of(data):
    """(files, their bytes) by the headers at blocks' starts, as a reader must find them that trusts nothing else."""
    at, n, n_bytes, lost, empty, size = 0, 0, 0, False, False, None
    while at + BLOCK <= len(data):
        head = data[at:at + BLOCK]
        at += BLOCK
        if head == bytes(BLOCK):
            if empty and not lost:
                break
            empty = True
            continue
        empty = False
        text = head[124:136].strip(b" \0")
        good = sum(head[:148]) + 8 * 32 + sum(head[156:]) == int(head[148:156].strip(b" \0") or b"0", 8) \
            if re.fullmatch(rb"[0-7]*", head[148:156].strip(b" \0")) else False
        if not good or (lost and head[257:262] != b"ustar") or not re.fullmatch(rb"[0-7]*", text):
            lost = True
            continue
        length, kind = int(text or b"0", 8), head[156:157]
        if kind in (b"x", b"g", b"L", b"K"):
            if kind == b"x":
                found = re.search(rb"\d+ size=(\d+)\n", data[at:at + length])
                size = int(found.group(1)) if found else size
            at = min(len(data), at + -(-length // BLOCK) * BLOCK)
            continue
        if kind in b"123456":
            size = None
            continue
        length, size = (length if size is None else size), None
        there = min(length, len(data) - at)
        at = min(len(data), at + -(-length // BLOCK) * BLOCK)
        if kind in (b"0", b"7", b"\0", b"S") and not head[:100].split(b"\0")[0].endswith(b"/"):
            n, n_bytes, lost = n + 1, n_bytes + there, False
    return n, n_bytes


class Sums(EncodeCase):
    def tar(self, first=0, order=None, more=(), without=(), format=tarfile.USTAR_FORMAT, mark=b"{}"):
        """N samples; order: of the names of members. more: (TarInfo, bytes) behind them."""
        out, files = io.BytesIO(), {}
        for i in range(first, first + N):
            files["%04d.png" % i] = self.pictures[i]
            files["%04d.txt" % i] = b"caption %d" % i
            files["%04d.json" % i] = mark
        names = [name for name in sorted(files, key=order) if name not in without]
        with tarfile.open(fileobj=out, mode="w", format=format) as tar:
            for name in names:
                info = tarfile.TarInfo(name)
                info.size = len(files[name])
                tar.addfile(info, io.BytesIO(files[name]))
            for info, data in more:
                info.size = len(data) if info.isreg() else 0
                tar.addfile(info, io.BytesIO(data) if info.isreg() else None)
        return out.getvalue()

    def damaged(self):
        """[(what, bytes)]"""
        rng, whole = random.Random(40), self.tar(10)
        heads = [at for at in range(0, len(whole), BLOCK) if whole[at + 257:at + 262] == b"ustar"]
        end = len(whole.rstrip(b"\0"))
        end += -end % BLOCK

        def changed(at, data):
            return whole[:at] + data + whole[at + len(data):]

        def entry(name, kind=tarfile.REGTYPE, link=""):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            return info
        zipped = io.BytesIO()
        with zipfile.ZipFile(zipped, "w") as file:
            file.writestr("0.png", self.pictures[0])
        pax = entry("x" * 150 + "/pax.png")
        return [
            ("of no bytes", b""), ("cut in the first header", whole[:100]), ("cut in a header", whole[:heads[7] + 200]),
            ("cut in a picture", whole[:heads[4] + BLOCK + 300]), ("cut behind a picture", whole[:heads[5]]),
            ("cut behind a sample", whole[:heads[6]]), ("cut before the end", whole[:end]), ("one empty block", whole[:end + BLOCK]),
            ("a part of the end", whole[:end + 100]), ("a header's name", changed(heads[3], b"\xff")),
            ("a header's size", changed(heads[4] + 124, b"77777777777")), ("a header's sum", changed(heads[9] + 148, b"000000")),
            ("a header's magic", changed(heads[5] + 257, b"USTAR")), ("two headers", changed(heads[3], bytes(5))[:heads[8]] +
                                                                      b"\1" * 9 + whole[heads[8] + 9:]),
            ("the first header", changed(0, b"\xfe" * 200)), ("the last header", changed(heads[-1], b"\xfe" * 200)),
            ("bytes of a picture", changed(heads[2] + BLOCK + 20, b"\xaa" * 90)), ("an empty block inside", changed(heads[3], bytes(BLOCK))),
            ("two empty blocks inside", changed(heads[3], bytes(2 * BLOCK))), ("a lost block", whole[:heads[6]] + whole[heads[6] + BLOCK:]),
            ("a doubled block", whole[:heads[6]] + whole[heads[6]:heads[6] + BLOCK] + whole[heads[6]:]),
            ("an odd byte", whole[:heads[6]] + b"!" + whole[heads[6]:]), ("pictures, then captions", self.tar(10, order=lambda n: n[5:])),
            ("in any order", self.tar(10, order=lambda n: rng.random())), ("a caption lacks", self.tar(10, without=["0012.txt"])),
            ("a picture lacks", self.tar(10, without=["0012.png", "0015.png"])),
            ("a key again", self.tar(10, more=[(entry("0010.png"), self.pictures[0]), (entry("0010.txt"), b"other")])),
            ("members without a key", self.tar(10, more=[(entry("README"), b"words"), (entry(".x.png"), b"more"), (entry("a/.b"), b"")])),
            ("links and folders", self.tar(10, more=[(entry("l.png", tarfile.SYMTYPE, "0010.png"), b""), (entry("d", tarfile.DIRTYPE), b""),
                                                     (entry("h.png", tarfile.LNKTYPE, "0010.png"), b"")])),
            ("long names", self.tar(10, more=[(pax, self.pictures[1]), (entry("x" * 150 + "/pax.txt"), b"c")], format=tarfile.PAX_FORMAT)),
            ("GNU's long names", self.tar(10, more=[(entry("y" * 150 + ".png"), self.pictures[1])], format=tarfile.GNU_FORMAT)),
            ("NaN", self.tar(10, mark=b'{"x": NaN}')), ("a .json that is none", self.tar(10, mark=b"{")),
            ("words behind the end", whole + b"behind the end" * 100), ("a tar behind the end", whole + self.tar(16)),
            ("gzip", gzip.compress(whole, mtime=0)), ("zip", zipped.getvalue()), ("a page", b"<!DOCTYPE html><p>Access denied"),
            ("zeros", bytes(10240)), ("noise", rng.randbytes(5000)),
        ]

    def test_sums(self):
        damaged = self.damaged()
        self.assertEqual(len(damaged), 40)
        aside = []
        for i, (what, data) in enumerate(damaged):
            with self.subTest(what):
                if self.check_sum(i, what, data, "empty" if i % 2 else "reject"):
                    aside.append(what)
        self.assertEqual(aside, ["of no bytes", "cut in the first header", "in any order", "gzip", "zip", "a page", "noise"])

    def test_halves(self):
        """Pictures first, then their captions: all rows say what is wrong with the tar, also across parts."""
        source, out = self.lab.path("halves"), self.lab.path("halves-out")
        os.makedirs(source)
        for name, data in (("0.tar", self.tar(10, order=lambda n: n[5:])), ("1.tar", self.tar(0))):
            with open(os.path.join(source, name), "wb") as file:
                file.write(data)
        recipe = self.write_recipe("halves", max_rejected=1)
        code, text = self.encode(recipe, out, source=source)
        self.assertEqual(code, 0, text)
        # The .json came first, then the picture, then the caption: three samples of one key.
        self.assertEqual({reason for _, reason in rejects(out)}, {"apart"})
        self.assertEqual(json.loads(tree(out)["encoder.json"])["rejected"], {"apart": 3 * N})
        rows = tree(out)["rejects/u00000.jsonl"].decode()
        self.assertEqual(rows.count("do not lie together; sort the tar by name"), 3 * N)
        code, text = self.lab.run(SDPREP, "check", "--recipe", recipe, "--in", source, errors=subprocess.DEVNULL)
        self.assertEqual(text, rows)

    def check_sum(self, i, what, data, missing):
        """True: the damaged tar is set aside."""
        source, out = self.lab.path("sums%02d" % i), self.lab.path("sums%02d-out" % i)
        tars = [self.tar(0), data, self.tar(20)]
        os.makedirs(source)
        for n, content in enumerate(tars):
            with open("%s/%d.tar" % (source, n), "wb") as file:
                file.write(content)
        recipe = self.write_recipe("sums-" + missing, missing_caption=missing, max_rejected=1, max_damaged_units=1)
        code, text = self.encode(recipe, out, source=source)
        reports = {name: json.loads(content) for name, content in tree(out).items() if re.fullmatch(r"encoding/u\d+\.json", name)}
        aside = 3 - len(reports)
        self.assertEqual(code, 1 if aside else 0, text)
        self.assertEqual((aside, "1.tar" in text), (aside, True) if aside else (0, "1.tar" in text), text)
        self.assertIn("units: %d" % len(reports), text)
        self.assertEqual("set aside: 1" in text, aside == 1, text)
        # Bytes: of those that were read all, of the one that was set aside its size.
        sums = {}
        for report in reports.values():
            content, found = tars[report["unit"]], report["input"]
            self.assertEqual(sum(found[key] for key in ("member_bytes", "bytes_of_no_sample", "frame_bytes", "lost_bytes")),
                             len(content), found)
            n, n_bytes = members_of(content)
            self.assertEqual((found["members"] + found["members_of_no_sample"], found["member_bytes"] + found["bytes_of_no_sample"]),
                             (n, n_bytes), found)
            self.assertEqual(report["raw"], sum(file["samples"] for file in report["files"]) + sum(row["n"] for row in report["rejected"]))
            self.assertEqual(report["damage"] != "", any(found[key] for key in ("without_sample", "without_end", "damaged")), found)
            for key, value in found.items():
                sums[key] = sums.get(key, 0) + value
        if aside:
            return True
        # Samples: each that was in it was kept with its own caption, was rejected, or lies in what is told to be lost.
        encoder = json.loads(tree(out)["encoder.json"])
        self.assertEqual(encoder["input"], sums)
        self.assertEqual(encoder["raw_samples"], encoder["samples"] + sum(encoder["rejected"].values()))
        kept, rejected = samples(out), [key for key, _ in rejects(out)]
        self.assertEqual((len(kept), len(rejected)), (encoder["samples"], sum(encoder["rejected"].values())))
        told = set(rejected)
        for row in kept:
            key = row["key"].decode()
            if re.fullmatch(r"\d{4}", key):
                self.assertIn(row["caption"], (b"caption %d" % int(key), b""), key)
                self.assertTrue(row["caption"] or missing == "empty", key)
            told.add(key)
        untold = [n for n in range(10, 10 + N) if "%04d" % n not in told]
        self.assertTrue(not untold or sums["lost_bytes"] + sums["without_end"] + sums["without_sample"] > 0, untold)
        self.assertEqual(text.count("members follow its end"), what in ("a tar behind the end", "two empty blocks inside"), text)
        return False


if __name__ == "__main__":
    unittest.main()
