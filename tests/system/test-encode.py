#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdprep encode, by a tiny model: from tars and raw MDS to a dataset that a job trains on. Killed at every point, by several
processes, with a full disk: the same bytes. What cannot be used is named; what belongs to somebody else is refused."""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest

import dataset
from encoded import MODEL, SDPREP, EncodeCase, rejects, samples, tree, write_tar
from lab import BIN, SOURCE, UNET, process_state, until

SHADOW = os.path.abspath(os.path.join(BIN, "libsdtrain-shadow.so"))
POINTS = ["encode.input", "encode.claim", "encode.unit.changes", "encode.part.made", "encode.part.shard", "encode.part.report", "encode.unit.rejects",
          "encode.unit.report", "encode.finish.listed", "encode.finish.encoder", "encode.finish.compact", "encode.finish.index",
          "store.put.before", "store.put.half", "store.put.after"]


class Encode(EncodeCase):
    def test_dataset(self):
        rows = samples(self.out)
        self.assertEqual(len(rows), 32)
        self.assertEqual(rejects(self.out), [("000000007", "decode"), ("000000020", "no-caption")])
        self.assertEqual([row["key"].decode() for row in rows], ["%09d" % i for i in range(34) if i not in (7, 20)])
        self.assertEqual(rows[8]["caption"], b"a caption, number 9")
        for row in rows:
            self.assertEqual((len(row["latents"]), len(row["text"])), (2 * 4 * 8 * 8, 2 * 77 * 64))
        self.assertEqual(len({row["latents"] for row in rows}), 32)
        self.assertEqual(len({row["text"] for row in rows}), 32)
        # 13, 1 and 20 samples in parts of 5.
        self.assertEqual([name for name in sorted(self.reference) if name.endswith(".mds")],
                         ["u00000-p0000.mds", "u00000-p0001.mds", "u00000-p0002.mds", "u00001-p0000.mds",
                          "u00002-p0000.mds", "u00002-p0001.mds", "u00002-p0002.mds", "u00002-p0003.mds"])
        encoder = json.loads(self.reference["encoder.json"])
        self.assertEqual((encoder["raw_samples"], encoder["samples"]), (34, 32))
        self.assertEqual(encoder["rejected"], {"decode": 1, "no-caption": 1})
        self.assertEqual(encoder["latents"]["shape"], [4, 8, 8])
        self.assertEqual(encoder["text"]["shape"], [77, 64])
        # The compact index is made of the reports; it is the one that the shards would give.
        other = self.lab.path("indexed")
        shutil.copytree(self.out, other)
        os.remove(os.path.join(other, "index.sdtrain"))
        self.assertEqual(self.lab.run(SDPREP, "index", other, "--sample-hashes")[0], 0)
        self.check(other, "index")
        # It is finished: who asks again changes nothing.
        code, text = self.encode(self.recipe, self.out)
        self.assertEqual(code, 0, text)
        self.assertIn("is finished", text)
        self.check(self.out, "again")

    def test_bits(self):
        """Neither the batch, nor threads, nor where the model lies."""
        os.symlink(MODEL, self.lab.path("model"))
        for name, changes in (("batch", {"batch": 16}), ("one", {"batch": 1}), ("threads", {"threads": 3}),
                              ("model", {"model": "file://" + self.lab.path("model"), "max_rejected": 1})):
            out = self.lab.path("bits", name)
            code, text = self.encode(self.write_recipe(name, **changes), out)
            self.assertEqual(code, 0, text)
            self.check(out, name)

    @unittest.skipUnless(os.path.exists(SHADOW), "the shadow module was not built")
    def test_cuda(self):
        """A device that computes as the CPU does makes the same dataset; one that is not there is said."""
        self.addCleanup(setattr, self.lab, "environment", self.lab.environment)
        self.lab.environment = dict(self.lab.environment, SDTRAIN_CUDA_MODULE="/nonexistent")
        code, text = self.encode(self.recipe, self.lab.path("cuda"), "--device", "cuda")
        self.assertEqual(code, 1, text)
        self.assertIn("/nonexistent", text)
        self.assertFalse(os.path.exists(self.lab.path("cuda")))
        self.lab.environment = dict(self.lab.environment, SDTRAIN_CUDA_MODULE=SHADOW)
        code, text = self.encode(self.recipe, self.lab.path("cuda"), "--device", "cuda", "--threads", "2")
        self.assertEqual(code, 0, text)
        self.check(self.lab.path("cuda"), "cuda")

    def test_killed_at_each_point(self):
        with open(os.path.join(SOURCE, "prep/encode/unit.c")) as unit, \
                open(os.path.join(SOURCE, "prep/encode/finish.c")) as finish, \
                open(os.path.join(SOURCE, "prep/encode/folder.c")) as folder:
            text = unit.read() + finish.read() + folder.read()
        self.assertEqual(set(re.findall(r'fault\("([^"]+)"\)', text)) - set(POINTS), {"encode.put.there"})
        for point in POINTS:
            out = self.lab.path("killed", point)
            visit = 1
            for _ in range(60):
                code, text = self.encode(self.recipe, out, fault="%s=kill@%d" % (point, visit))
                if code == 0:
                    break
                self.assertEqual(code, -signal.SIGKILL, text)
                visit += 2  # or it would never come beyond a point that each life meets
            self.assertEqual(code, 0, text)
            self.assertGreater(visit, 1, point)
            self.check(out, point)

    def test_killed_before_it_tidies(self):
        """A life that is killed leaves reports of parts, and the last one does not come to remove them."""
        out = self.lab.path("untidy")
        self.assertEqual(self.encode(self.recipe, out, fault="encode.unit.report=kill")[0], -signal.SIGKILL)
        self.assertEqual(self.encode(self.recipe, out, fault="encode.finish.index=kill")[0], -signal.SIGKILL)
        self.assertIn("encoding/u00000-p0000.json", tree(out))
        code, text = self.encode(self.recipe, out)
        self.assertEqual((code, "is finished" in text), (0, True), text)
        self.check(out, "untidy")

    def test_work_lost_is_one_part(self):
        """The fifth part dies: a life later four are found, and the networks see only what is left."""
        out = self.lab.path("lost")
        code, text = self.encode(self.recipe, out, fault="encode.part.made=kill@5")
        self.assertEqual(code, -signal.SIGKILL, text)
        code, text = self.encode(self.recipe, out)
        self.assertEqual(code, 0, text)
        # 13 + 1 samples were in four finished parts.
        self.assertRegex(text, r"\b20 samples, ")
        self.check(out, "lost")

    def test_processes(self):
        out = self.lab.path("processes")
        lives = [self.start(out, None, "--units", "%d/2" % n) for n in (1, 1, 2)]
        code, text = self.encode(self.recipe, self.lab.path("nobody"), "--finish")
        self.assertEqual(code, 1, text)
        self.assertIn("3 of 3 units are not done, 00000.tar first", text)
        for life in lives:
            code, text = self.end(life)
            self.assertEqual(code, 0, text)
        self.assertNotIn("index.json", tree(out))
        code, text = self.encode(self.recipe, out, "--finish")
        self.assertEqual(code, 0, text)
        self.check(out, "processes")
        # Nobody keeps two from doing everything.
        out = self.lab.path("twice")
        for code, text in [self.end(life) for life in [self.start(out), self.start(out)]]:
            self.assertEqual(code, 0, text)
        self.check(out, "twice")
        for options in (["--units", "0/2"], ["--units", "3/2"], ["--units", "1"], ["--threads", "0"], ["--device", "tpu"],
                        ["--cost-per-hour", "inf"], ["--cost-per-hour", ""], ["--finish", "--units", "1/2"]):
            code, text = self.encode(self.recipe, out, *options)
            self.assertEqual((code, options[0] in text), (2, True), text)
            self.assertNotIn("--recipe", text)

    def test_a_report_that_goes(self):
        """Of two processes at one unit the first ends it, and removes a part's report that the second is about to look at."""
        out = self.lab.path("goes")
        second = self.start(out, "encode.part.made=stop@1,encode.put.there=stop@2")  # its second put is the report
        until(lambda: process_state(second.pid) == "T", "the second process to be stopped")
        first = self.start(out, "encode.unit.rejects=stop@1")
        until(lambda: process_state(first.pid) == "T", "the first process to be stopped")
        second.send_signal(signal.SIGCONT)
        until(lambda: process_state(second.pid) == "T", "the second process to be stopped again")
        for life in (first, second):
            life.send_signal(signal.SIGCONT)
            code, text = self.end(life)
            self.assertEqual(code, 0, text)
        self.check(out, "a report that went")

    def test_finished_too_early(self):
        """The last process ends while another one finishes the dataset: shards that came after the list are there."""
        out = self.lab.path("early")
        self.assertEqual(self.encode(self.recipe, out, "--units", "1/2")[0], 0)
        life = self.start(out, "encode.finish.listed=stop", "--finish")
        until(lambda: process_state(life.pid) == "T", "the process to be stopped")
        self.assertEqual(self.encode(self.recipe, out, "--units", "2/2")[0], 0)
        life.send_signal(signal.SIGCONT)
        code, text = self.end(life)
        self.assertEqual(code, 0, text)
        self.check(out, "early")

    def test_full_disk(self):
        """At each put: of the claim, of shards and reports, of what makes the dataset. All lives wait at once."""
        lives, n_waits = [], 0
        for first in range(1, 31, 5):
            out, fault = self.lab.path("full%d" % first), ",".join("store.put.before=enospc@%d" % (first + n) for n in range(5))
            lives.append((out, fault, self.start(out, fault)))
        for out, fault, life in lives:
            code, text = self.end(life)
            self.assertEqual(code, 0, text)
            self.check(out, fault)
            self.assertIn("goes on after", text)
            self.assertEqual(text.count("strikes"), len(re.findall("waiting: .*No space left", text)))
            n_waits += text.count("strikes")
        # Each object, and the reports of parts, which are gone.
        self.assertEqual(n_waits, len(self.reference) + 8)

    def test_full_disk_takes_leftovers_away(self):
        """What a writer that died has left goes when there is no room, and not only when a dataset is finished."""
        out = self.lab.path("leftovers")
        os.makedirs(out)
        old, young = (os.path.join(out, ".put-abcde%d-00000.mds" % i) for i in range(2))
        for path in (old, young):
            with open(path, "w") as file:
                file.write("half a shard")
        os.utime(old, (time.time() - 7200,) * 2)
        code, text = self.encode(self.recipe, out, "--units", "1/2")
        self.assertEqual((code, os.path.exists(old), os.path.exists(young)), (0, True, True), text)
        code, text = self.encode(self.recipe, out, "--units", "2/2", fault="store.put.before=enospc@2")
        self.assertEqual((code, os.path.exists(old), os.path.exists(young)), (0, False, True), text)
        self.assertIn("removed 1 leftovers of dead writers", text)

    def test_stopped_for_a_while(self):
        """Time that went by while a process was stopped decides nothing."""
        out = self.lab.path("stopped")
        life = self.start(out, "encode.picture=stop@9")
        until(lambda: process_state(life.pid) == "T", "the process to be stopped")
        code, text = self.encode(self.recipe, out, "--units", "2/3")
        self.assertEqual(code, 0, text)
        life.send_signal(signal.SIGCONT)
        code, text = self.end(life)
        self.assertEqual(code, 0, text)
        self.check(out, "stopped")

    def test_somebody_elses(self):
        identity = json.loads(self.reference["encoding/identity.json"])["identity"]
        # A finished dataset and one under way, of another recipe.
        begun = self.lab.path("begun")
        self.assertEqual(self.encode(self.recipe, begun, fault="encode.part.report=kill@2")[0], -signal.SIGKILL)
        before = tree(begun)
        other = self.write_recipe("other", resample="bicubic")
        for out in (self.out, begun):
            code, text = self.encode(other, out)
            self.assertEqual(code, 1, text)
            self.assertIn(identity, text)
            self.assertIn('recipe.resample was "bilinear", is "bicubic" (its identity was', text)
            self.assertEqual(len(set(re.findall(r"\b[0-9a-f]{32}\b", text))), 2, text)
        # Another input by the same recipe.
        write_tar(self.lab.path("less", "00000.tar"), [("0.png", self.pictures[0]), ("0.txt", b"c")])
        code, text = self.encode(self.recipe, begun, source=self.lab.path("less"))
        self.assertEqual(code, 1, text)
        self.assertIn("another input", text)
        self.assertEqual(tree(begun), before)
        # A shard that somebody changed is not built upon.
        os.remove(os.path.join(begun, "encoding/u00000-p0001.json"))
        with open(os.path.join(begun, "u00000-p0001.mds"), "r+b") as file:
            file.seek(-1, 2)
            last = file.read(1)
            file.seek(-1, 2)
            file.write(bytes([last[0] ^ 1]))
        code, text = self.encode(self.recipe, begun)
        self.assertEqual(code, 1, text)
        self.assertIn("u00000-p0001.mds is there already with other bytes", text)
        # Nor is a dataset made of a shard that has gone, or was cut, after its report said that it is there.
        gone = self.lab.path("gone")
        self.assertEqual(self.encode(self.recipe, gone, fault="encode.unit.report=kill@3")[0], -signal.SIGKILL)
        shard = os.path.join(gone, "u00000-p0001.mds")
        os.truncate(shard, os.path.getsize(shard) - 1)
        code, text = self.encode(self.recipe, gone)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"u00000-p0001.mds has \d+ bytes, not \d+: remove what is left of it and encoding/u00000.json")
        os.remove(shard)
        code, text = self.encode(self.recipe, gone)
        self.assertEqual(code, 1, text)
        self.assertIn("u00000-p0001.mds is not there any more", text)
        os.remove(os.path.join(gone, "encoding/u00000.json"))
        code, text = self.encode(self.recipe, gone)
        self.assertEqual(code, 0, text)
        self.check(gone, "a shard that had gone")
        # Nor does a part's report, which a life that died has left, stand for a shard that has gone.
        gone = self.lab.path("gone-part")
        self.assertEqual(self.encode(self.recipe, gone, fault="encode.unit.report=kill@1")[0], -signal.SIGKILL)
        self.assertIn("encoding/u00000-p0001.json", tree(gone))
        for name in ("u00000-p0001.mds", "encoding/u00000.json"):
            os.remove(os.path.join(gone, name))
        code, text = self.encode(self.recipe, gone)
        self.assertEqual(code, 0, text)
        self.assertIn("u00000-p0001.mds is not there any more: it is made again", text)
        self.check(gone, "a part's shard that had gone")
        # A dataset that is not an encoding.
        code, text = self.encode(self.recipe, self.lab.path("data"))
        self.assertEqual(code, 1, text)
        self.assertIn("already holds a dataset", text)

    def test_bad_arguments(self):
        for changes, word in (({"model": None}, "model"), ({"sides": 3}, "sides"), ({"side": 60}, "side"),
                              ({"model": self.lab.path("raw")}, "vae"), ({"tokenizer": "t5"}, "tokenizer"),
                              ({"shard_samples": 65536, "side": 256}, "shard_samples")):
            code, text = self.encode(self.write_recipe("bad", **changes), self.lab.path("bad"))
            self.assertEqual(code, 1, text)
            self.assertIn(word, text)
        self.assertFalse(os.path.exists(self.lab.path("bad")))

    def test_captions_and_columns(self):
        """Odd captions go to the tokenizer as they are; filters and kept columns come from the .json."""
        odd = {"empty": b"", "bangs": b"!!!!", "nul": b"a\0b", "long": b"word " * 200000, "end": b"<end_of_text> x",
               "vast": b"word " * 210000, "latin": b"caf\xe9"}
        members = []
        for i, (key, caption) in enumerate(odd.items()):
            members += [(key + ".png", self.pictures[i]), (key + ".txt", caption),
                        (key + ".json", json.dumps({"width": 640 + i, "score": 9, "url": "u%d" % i}).encode())]
        for key, fields in (("null", {"caption": None, "score": 9, "width": 1}), ("low", {"caption": "c", "score": 1}),
                            ("none", {"caption": "c", "width": 1}), ("broad", {"caption": "c", "score": 5}),
                            ("fine", {"caption": "c", "score": 5, "width": 7.0}),
                            ("surrogate", {"caption": "\ud800", "score": 9, "width": 1})):
            members += [(key + ".png", self.pictures[9]), (key + ".json", json.dumps(fields).encode())]
        source = self.lab.path("odd")
        write_tar(source + "/0.tar", members)
        recipe = self.write_recipe("odd", filters={"score": {"min": 4.5}}, max_rejected=1,
                                   keep={"caption": "str", "key": "str", "width": "int64", "url": "str", "score": "float64"})
        out = self.lab.path("odd-out")
        code, text = self.encode(recipe, out, source=source)
        self.assertEqual(code, 0, text)
        self.assertEqual(rejects(out), [("vast", "too-large"), ("latin", "not-utf8"), ("null", "no-caption"), ("low", "filtered:score"),
                                        ("none", "filtered:score"), ("broad", "no-column:width"),
                                        ("surrogate", "not-utf8")])
        rows = {row["key"].decode(): row for row in samples(out)}
        self.assertEqual(set(rows), {"empty", "bangs", "nul", "long", "end", "fine"})
        for key in ("empty", "bangs", "nul", "long", "end"):
            self.assertEqual(rows[key]["caption"], odd[key])
        self.assertEqual(struct.unpack("<q", rows["fine"]["width"]), (7,))
        self.assertEqual(struct.unpack("<d", rows["bangs"]["score"]), (9.0,))
        self.assertEqual((rows["nul"]["url"], rows["fine"]["url"]), (b"u2", b""))
        # The empty caption's embedding is what a job drops captions for.
        self.assertEqual(tree(out)["empty.npy"][-2 * 77 * 64:], rows["empty"]["text"])
        # sdprep check says the same of them, without a model.
        code, text = self.lab.run(SDPREP, "check", "--recipe",
                                  self.write_recipe("check", model=None, max_rejected=1, filters={"score": {"min": 4.5}},
                                                    keep={"caption": "str", "width": "int64"}), "--in", source, errors=subprocess.DEVNULL)
        self.assertEqual(code, 0, text)
        self.assertEqual([(row["key"], row["reason"]) for row in map(json.loads, text.splitlines())], rejects(out))
        # By choice a sample without a caption has the empty one.
        out = self.lab.path("odd-empty")
        code, text = self.encode(self.write_recipe("empty", missing_caption="empty", max_rejected=1), out, source=source)
        self.assertEqual(code, 0, text)
        more = {row["key"].decode(): row for row in samples(out)}
        self.assertEqual(more["null"]["text"], rows["empty"]["text"])

    def test_too_many_rejects(self):
        source = self.lab.path("bare")
        write_tar(source + "/0.tar", [("%d.txt" % i, b"c") for i in range(700)])
        code, text = self.encode(self.write_recipe("bare", shard_samples=100), self.lab.path("bare-out"), source=source)
        self.assertEqual(code, 1, text)
        self.assertIn("of 501 samples 501 were rejected: 501 no-image", text)
        # Whoever starts it again gets the same answer, until the recipe allows more.
        code, text = self.encode(self.write_recipe("bare", shard_samples=100), self.lab.path("bare-out"), source=source)
        self.assertEqual(code, 1, text)
        self.assertIn("of 501 samples 501 were rejected: 501 no-image", text)
        # Tars of a few samples count together, also those that an earlier life has ended.
        small = self.lab.path("bare-small")
        for tar in range(3):
            write_tar("%s/%d.tar" % (small, tar), [("%d.txt" % i, b"c") for i in range(200)])
        for _ in range(2):
            code, text = self.encode(self.write_recipe("bare", shard_samples=100), small + "-out", source=small)
            self.assertEqual(code, 1, text)
            self.assertIn("of 501 samples 501 were rejected: 501 no-image", text)
        self.assertIn("encoding/u00001.json", tree(small + "-out"))
        code, text = self.encode(self.write_recipe("more", shard_samples=100, max_rejected=1), small + "-out", source=small)
        self.assertIn("of 600 samples none is left; rejected: 600 no-image", text)
        self.assertNotIn("index.json", tree(self.lab.path("bare-out")))
        # Filters are wishes: they may reject everything, and then nothing is left.
        write_tar(source + "/0.tar", [("0.png", self.pictures[0]), ("0.json", b'{"caption": "c"}')])
        code, text = self.encode(self.write_recipe("wish", filters={"x": {"min": 1}}), self.lab.path("wish"), source=source)
        self.assertEqual(code, 1, text)
        self.assertIn("of 1 samples none is left; rejected: 1 filtered:x", text)

    def test_deadly_pictures(self):
        """Two pictures, of two parts, kill their decoders twice. All other parts and units are done; again, or without
        the two, the dataset is ended."""
        out = self.lab.path("deadly")
        code, text = self.encode(self.recipe, out, fault="encode.picture=eio@3,encode.picture=eio@20")
        self.assertEqual(code, 1, text)
        deadly = re.findall(r'killed a decoder twice: "(\d+)"', text)
        self.assertEqual(deadly, ["000000002", "000000021"])
        self.assertIn("the pictures of 2 samples killed their decoders twice", text)
        left = {name: self.reference[name] for name in self.reference if re.match("u0", name)}
        del left["u00000-p0000.mds"], left["u00002-p0001.mds"]
        found = tree(out)
        self.assertEqual({name: found[name] for name in found if name.endswith(".mds")}, left)
        self.assertIn("encoding/u00001.json", found)
        self.assertNotIn("encoding/u00000.json", found)
        code, text = self.encode(self.recipe, out, "--finish")
        self.assertEqual(code, 1, text)
        self.assertIn("2 of 3 units are not done", text)
        # A run that ends for another reason tells, too, what it has found.
        code, text = self.encode(self.write_recipe("strict", max_rejected=1e-4), self.lab.path("strict"), fault="encode.picture=eio@3")
        self.assertEqual(code, 1, text)
        self.assertIn("more than max_rejected", text)
        self.assertEqual(re.findall(r'killed a decoder twice: "(\d+)"', text), ["000000002"])
        # One of the two kills again; named, it is left out.
        code, text = self.encode(self.recipe, out, fault="encode.picture=eio@3")
        self.assertEqual(code, 1, text)
        self.assertIn("the pictures of 1 samples", text)
        code, text = self.encode(self.recipe, out, "--reject", "000000002")
        self.assertEqual(code, 0, text)
        self.assertEqual(rejects(out), [("000000002", "named"), ("000000007", "decode"), ("000000020", "no-caption")])
        shards = {name: data for name, data in tree(out).items() if name.endswith(".mds")}
        self.assertEqual([name for name in shards if shards[name] != self.reference[name]], ["u00000-p0000.mds"])
        # Without anything named, the two parts become what they would have been.
        out = self.lab.path("deadly-once")
        self.assertEqual(self.encode(self.recipe, out, fault="encode.picture=eio@3")[0], 1)
        code, text = self.encode(self.recipe, out)
        self.assertEqual(code, 0, text)
        self.check(out, "deadly once")

    def test_named(self):
        out = self.lab.path("named")
        code, text = self.encode(self.recipe, out, "--reject", "000000003", "--units", "1/3")
        self.assertEqual(code, 0, text)
        # The folder remembers it.
        code, text = self.encode(self.recipe, out, "--reject", "000000014")
        self.assertEqual(code, 0, text)
        self.assertEqual([key for key, reason in rejects(out) if reason == "named"], ["000000003", "000000014"])
        encoder = json.loads(tree(out)["encoder.json"])
        self.assertEqual(encoder["named"], ["000000003", "000000014"])
        self.assertNotEqual(encoder["identity"], json.loads(self.reference["encoder.json"])["identity"])
        self.assertIn("identity " + encoder["identity"], text)
        # A sample that was encoded before it was named is in the dataset: that is said.
        out = self.lab.path("named-late")
        self.assertEqual(self.encode(self.recipe, out, "--units", "1/3")[0], 0)
        code, text = self.encode(self.recipe, out, "--reject", "000000003")
        self.assertEqual(code, 1, text)
        self.assertIn("000000003 was to be left out", text)
        # That may be undone, as may a key that was mistyped.
        os.remove(os.path.join(out, re.search("remove (encoding/named/[0-9a-f]{32}) if it may stay", text).group(1)))
        code, text = self.encode(self.recipe, out)
        self.assertEqual(code, 0, text)
        self.check(out, "nothing is named any more")
        # In a finished dataset nothing can be named any more that is in it.
        code, text = self.encode(self.recipe, out, "--reject", "000000003")
        self.assertEqual(code, 1, text)
        self.assertIn("is finished, and the sample 000000003 was not left out", text)
        self.check(out, "too late")
        code, text = self.encode(self.recipe, self.lab.path("named"), "--reject", "000000014", "--reject", "000000003")
        self.assertEqual(code, 0, text)
        # sdprep check takes them in any order, too.
        code, text = self.lab.run(SDPREP, "check", "--recipe", self.recipe, "--in", self.lab.path("raw"), "--reject", "000000014",
                                  "--reject", "000000003", "--reject", "000000005", errors=subprocess.DEVNULL)
        self.assertEqual(code, 0, text)
        self.assertEqual([(row["key"], row["reason"]) for row in map(json.loads, text.splitlines())],
                         [("000000003", "named"), ("000000005", "named"), ("000000007", "decode"), ("000000014", "named"),
                          ("000000020", "no-caption")])
        # One key in two units is named once.
        for tar in ("00000.tar", "00001.tar"):
            write_tar(self.lab.path("same-keys", tar), [("0.png", self.pictures[0]), ("0.txt", b"c"), ("1.png", self.pictures[1]),
                                                        ("1.txt", b"d")])
        out = self.lab.path("named-twice")
        code, text = self.encode(self.recipe, out, "--reject", "0", source=self.lab.path("same-keys"))
        self.assertEqual(code, 0, text)
        self.assertEqual(json.loads(tree(out)["encoder.json"])["named"], ["0"])

    def test_raw_mds(self):
        """The same pictures and captions as a raw dataset: the same latents and text."""
        source = self.lab.path("mds")
        os.makedirs(source)
        shards = []
        columns = [("caption", "str", None), ("jpg", "bytes", None), ("key", "str", None)]
        config = {"column_encodings": [c[1] for c in columns], "column_names": [c[0] for c in columns],
                  "column_sizes": [None] * 3, "compression": None, "format": "mds", "hashes": [], "size_limit": None,
                  "version": 2}
        for number, (first, last) in enumerate(((0, 9), (9, 16))):
            rows = []
            for i in range(first, last):
                fields = [b"a caption, number %d" % i, self.pictures[i], b"%09d" % i]
                rows.append(struct.pack("<3I", *map(len, fields)) + b"".join(fields))
            data = dataset._shard(rows, config)
            name = "shard.%05d.mds" % number
            with open(os.path.join(source, name), "wb") as file:
                file.write(data)
            shards.append(dict(config, samples=len(rows), zip_data=None,
                               raw_data={"basename": name, "bytes": len(data), "hashes": {}}))
        with open(os.path.join(source, "index.json"), "w") as file:
            json.dump({"shards": shards, "version": 2}, file)
        out = self.lab.path("mds-out")
        code, text = self.encode(self.recipe, out, source=source)
        self.assertEqual(code, 0, text)
        wanted = {row["key"]: row for row in samples(self.out)}
        found = samples(out)
        self.assertEqual(len(found), 16)
        for row in found:
            if row["key"] != b"000000007":  # whose picture is broken in the tar
                self.assertEqual(row, wanted[row["key"]])
        # What is wanted of a column that is not there, or of the pictures', would be missing in each sample.
        for changes, words in (({"keep": {"jpg": "str"}}, "column jpg (bytes) holds neither text nor a number"),
                               ({"keep": {"kex": "str"}}, "kex"), ({"filters": {"unsafe": {"max": 1, "missing": "keep"}}}, "unsafe")):
            code, text = self.encode(self.write_recipe("column", **changes), out + "-column", source=source)
            self.assertEqual((code, words in text), (1, True), text)
        # A shard that is cut ends a run; encode and check name it.
        os.truncate(os.path.join(source, "shard.00001.mds"), 100)
        code, text = self.encode(self.recipe, out + "-cut", source=source)
        self.assertEqual((code, "shard.00001.mds is truncated" in text), (1, True), text)
        code, text = self.lab.run(SDPREP, "check", "--recipe", self.recipe, "--in", source)
        self.assertEqual((code, "shard.00001.mds is truncated" in text), (1, True), text)

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_check_without_room(self):
        """A list of rejects that is not whole is not a success."""
        with open("/dev/full", "w") as full:
            done = subprocess.run([SDPREP, "check", "--recipe", self.recipe, "--in", self.lab.path("raw")], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=300)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("standard output: No space left on device", done.stderr)

    def test_damaged_tar(self):
        source = self.lab.path("damaged")
        write_tar(source + "/0.tar", [(name % i, data) for i in range(8)
                                      for name, data in (("%d.png", self.pictures[i]), ("%d.txt", b"c"))])
        with open(source + "/0.tar", "r+b") as file:
            data = bytearray(file.read())
            at = data.index(b"3.png")
            data[at + 100] ^= 0x55
            file.seek(0)
            file.write(data)
            file.truncate(data.index(b"7.txt") + 512)
        out = self.lab.path("damaged-out")
        code, text = self.encode(self.recipe, out, source=source)
        self.assertEqual(code, 1, text)
        self.assertIn("more than max_damaged_units, 0.01 of all: units: 1, damaged 1; members: 15; lost bytes: ", text)
        made = {name: os.stat(os.path.join(out, name)).st_mtime_ns for name in tree(out)}
        code, text = self.encode(self.write_recipe("damaged", max_damaged_units=1), out, source=source)
        self.assertEqual(code, 0, text)
        self.assertEqual({name: os.stat(os.path.join(out, name)).st_mtime_ns for name in made}, made, "nothing is made twice")
        with open(out + "/encoder.json") as file:
            told = json.load(file)["input"]
        self.assertEqual((told["units"], told["damaged"], told["members"]), (1, 1, 15))
        self.assertEqual(sum(n for key, n in told.items() if "bytes" in key), os.path.getsize(source + "/0.tar"))
        code, text = self.lab.run(SDPREP, "check", "--recipe", self.recipe, "--in", source)
        self.assertEqual(code, 1, text)
        self.assertIn("damaged: 0.tar: no header of a member at byte %d" % at, text)
        self.assertEqual([row["key"] for row in samples(out)], [b"0", b"1", b"2", b"4", b"5", b"6"])
        self.assertEqual(rejects(out), [("3", "truncated"), ("7", "truncated")])

    def test_a_file_that_is_not_a_tar(self):
        """It is named and set aside, the others are made, and there is no dataset until it is mended."""
        source, out = self.lab.path("mixed"), self.lab.path("mixed-out")
        write_tar(source + "/0.tar", [("0.png", self.pictures[0]), ("0.txt", b"c")])
        write_tar(source + "/2.tar", [("2.png", self.pictures[1]), ("2.txt", b"c")])
        with open(source + "/1.tar", "wb") as file:
            file.write(b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>")
        for _ in range(2):
            code, text = self.encode(self.recipe, out, source=source)
            self.assertEqual(code, 1, text)
            self.assertIn("set aside: 1.tar: is not a tar but an XML text, as a store's error is", text)
            self.assertIn("1 of 3 units are not what they should be", text)
            self.assertNotIn("index.json", tree(out))
            self.assertIn("encoding/u00002.json", tree(out))
        code, text = self.lab.run(SDPREP, "check", "--recipe", self.recipe, "--in", source)
        self.assertEqual(code, 1, text)
        self.assertIn("units: 2; members: 4; set aside: 1", text)

    def test_trains(self):
        """Today's trainer trains on it; killed on its way it ends with the same digest."""
        unet = self.lab.write("unet64.json", json.dumps(dict(UNET, cross_attention_dim=64)))
        changes = dict(data=self.out, model__config=unet, train__steps=8, checkpoint__every_steps=2,
                       train__ema={"start_step": 3}, data__cache_dir=None)
        reference = self.lab.reference(self.lab.job("encoded", **changes))
        job = self.lab.job("encoded-killed", **changes)
        code, text = self.lab.train(job, fault="loop.compute=kill@6")
        self.assertEqual(code, -signal.SIGKILL, text)
        code, text = self.lab.train(job)
        self.assertEqual(code, 0, text)
        self.assertEqual(self.lab.digest(job), reference.digest)
        losses = [line["loss"] for line in self.lab.metrics(job)]
        self.assertTrue(all(0 < loss < 5 for loss in losses), losses)


if __name__ == "__main__":
    unittest.main(verbosity=2)
