#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdprep encode and what nobody expects: strange names, tars that change while they are read, folders inside each other or without
rights, two recipes at once, a clock that jumps."""
import json
import os
import re
import signal
import subprocess
import tarfile
import unittest

from encoded import SDPREP, EncodeCase, rejects, samples, tree, write_tar
from lab import BIN, process_state, until

CLOCK = os.path.abspath(os.path.join(BIN, "clock-step.so"))


class Odd(EncodeCase):
    def picture(self, number, key, *more):
        return [(key + ".png", self.pictures[number]), (key + ".txt", b"c"), *more]

    def test_names(self):
        """A key is a text, which no file is called by."""
        keys = ["/etc/absolute", "../../up", 'quote"d', "line\nend", "tab\t\x1b[31m", "\u00e9" * 600, "k" * 10000]
        source, out = self.lab.path("names"), self.lab.path("deep/names-out")
        write_tar(source + "/0.tar", [member for i, key in enumerate(keys) for member in self.picture(i, key)],
                  format=tarfile.PAX_FORMAT)
        os.rename(source + "/0.tar", os.fsencode(source) + b"/\xff \xc3\xa9.tar")
        code, text = self.encode(self.recipe, out, source=source)
        self.assertEqual(code, 0, text)
        self.assertEqual([row["key"].decode() for row in samples(out)], keys)
        self.assertEqual(os.listdir(self.lab.path("deep")), ["names-out"])
        self.assertEqual({name for name in tree(out) if "/" in name}, {"encoding/identity.json", "encoding/input.json", "encoding/u00000.json"})
        # Each can be left out by its name; a row has the first 1,000 bytes of it.
        out = self.lab.path("names-none")
        code, text = self.encode(self.recipe, out, *(part for key in keys[2:] for part in ("--reject", key)), source=source)
        self.assertEqual(code, 0, text)
        self.assertEqual([row["key"].decode() for row in samples(out)], keys[:2])
        self.assertEqual([key for key, _ in rejects(out)], keys[2:5] + [keys[5][:500], keys[6][:1000]])
        code, text = self.encode(self.recipe, out, "--reject", keys[6], source=source)
        self.assertEqual(code, 0, text)
        # What kills decoders is told as text that cannot forge a line.
        code, text = self.encode(self.recipe, self.lab.path("names-deadly"), source=source, fault="encode.picture=eio@4")
        self.assertEqual(code, 1, text)
        self.assertIn('killed a decoder twice: "line\\nend"\n', text)

    def test_json(self):
        members = self.picture(0, "deep", ("deep.json", b"[" * 60000)) + self.picture(1, "broad", ("broad.json", b"[" * 100000))
        members += self.picture(2, "large", ("large.json", b'{"a": "' + b"x" * (5 << 20) + b'"}'))
        members += self.picture(3, "text", ("text.json", b"\x89PNG")) + self.picture(4, "twice", ("twice.json", b'{"w": 1, "w": 2}'))
        members += self.picture(5, "infinite", ("infinite.json", b'{"w": 1e999}')) + self.picture(6, "nan", ("nan.json", b'{"w": NaN}'))
        members += self.picture(7, "long", ("long.json", b'{"w": 123456789012345678901234567890}'))
        members += self.picture(8, "fine", ("fine.json", b'{"w": 9223372036854775807}'))
        source, out = self.lab.path("json"), self.lab.path("json-out")
        write_tar(source + "/0.tar", members)
        recipe = self.write_recipe("json", keep={"w": "int64", "key": "str"}, max_rejected=1)
        code, text = self.encode(recipe, out, source=source)
        self.assertEqual(code, 0, text)
        self.assertEqual(rejects(out), [("deep", "bad-json"), ("broad", "bad-json"), ("large", "too-large"), ("text", "not-utf8"),
                                        ("infinite", "bad-json"), ("nan", "no-column:w"), ("long", "bad-json")])
        self.assertEqual([(row["key"], row["w"]) for row in samples(out)],
                         [(b"twice", (2).to_bytes(8, "little")), (b"fine", b"\xff" * 7 + b"\x7f")])

    def test_a_tar_that_grows_or_shrinks(self):
        """A tar that is another one than the one that was listed is set aside, and is another input afterwards."""
        source, out = self.lab.path("growing"), self.lab.path("growing-out")
        padding = [("%d.npy" % i, b"\0" * (6 << 20)) for i in range(3)]  # beyond what is read ahead
        for tar in range(2):
            write_tar("%s/%d.tar" % (source, tar), self.picture(0, "a") + padding + self.picture(1, "b"))
        life = self.start(out, "encode.picture=stop@1", source=source)
        until(lambda: process_state(life.pid) == "T", "the process to be stopped")
        with open(source + "/1.tar", "ab") as file:
            file.write(b"more" * 4000)
        life.send_signal(signal.SIGCONT)
        code, text = self.end(life)
        self.assertEqual(code, 1, text)
        self.assertIn("1.tar has changed since", text)
        self.assertIn("encoding/u00000.json", tree(out))
        self.assertNotIn("u00001-p0000.mds", tree(out))
        code, text = self.encode(self.recipe, out, source=source)
        self.assertEqual(code, 1, text)
        self.assertIn("another input", text)
        life = self.start(out + "2", "encode.part.report=stop@1", source=source)
        until(lambda: process_state(life.pid) == "T", "the process to be stopped")
        os.truncate(source + "/1.tar", 5 << 20)
        life.send_signal(signal.SIGCONT)
        code, text = self.end(life)
        self.assertEqual(code, 1, text)
        self.assertIn("1.tar", text)

    def test_the_list_of_units_changes(self):
        source, out = self.lab.path("units"), self.lab.path("units-out")
        for tar in range(2):
            write_tar("%s/%d.tar" % (source, tar), self.picture(tar, "a"))
        self.assertEqual(self.encode(self.recipe, out, "--units", "1/2", source=source)[0], 0)
        before = tree(out)
        write_tar(source + "/00.tar", self.picture(3, "a"))  # which would move both to other numbers
        for options in (["--units", "2/2"], ["--finish"], []):
            code, text = self.encode(self.recipe, out, *options, source=source)
            self.assertEqual(code, 1, text)
            self.assertIn("another input", text)
        self.assertEqual(tree(out), before)
        os.remove(source + "/00.tar")
        self.assertEqual(self.encode(self.recipe, out, "--units", "2/2", source=source)[0], 0)
        self.assertEqual(self.encode(self.recipe, out, "--finish", source=source)[0], 0)
        self.assertEqual(len(samples(out)), 2)

    def test_folders_inside_each_other(self):
        source = self.lab.path("nest")
        write_tar(source + "/0.tar", self.picture(0, "a"))
        code, text = self.encode(self.recipe, source, source=source)
        self.assertEqual(code, 1, text)
        self.assertIn("--in and --out are one folder", text)
        os.symlink(source, source + "-link")
        code, text = self.encode(self.recipe, source + "-link", source=source)
        self.assertEqual(code, 1, text)
        self.assertIn("--in and --out are one folder", text)
        self.assertEqual(os.listdir(source), ["0.tar"])
        for _ in range(2):
            code, text = self.encode(self.recipe, source + "/out", source=source)
            self.assertEqual(code, 0, text)
        self.assertEqual(len(samples(source + "/out")), 1)

    def test_no_right_to_write(self):
        """A folder that refuses is not a store that is away: nobody waits for it."""
        out = self.lab.path("readonly")
        os.makedirs(out + "/encoding")
        for folder in (out, out + "/encoding"):
            os.chmod(folder, 0o555)
        bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
        code, text = self.lab.run(*bare, SDPREP, "encode", "--recipe", self.recipe, "--in", self.lab.path("raw"), "--out", out)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, "encoding/input.json: Permission denied")
        self.assertNotIn("waiting", text)
        # Nor when the right goes on the way.
        late = self.lab.path("late")
        life = self.start(late, "encode.part.report=stop@1", before=bare)
        until(lambda: process_state(life.pid) == "T", "the process to be stopped")
        for folder in (late, late + "/encoding"):
            os.chmod(folder, 0o555)
        life.send_signal(signal.SIGCONT)
        code, text = self.end(life)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, "u00000-p0001.mds: Permission denied")
        # Nor for a file where a folder should be.
        code, text = self.encode(self.recipe, self.recipe)
        self.assertEqual(code, 1, text)
        self.assertIn("Not a directory", text)
        # A tar that may not be read.
        source = self.lab.path("closed")
        write_tar(source + "/0.tar", self.picture(0, "a"))
        os.chmod(source + "/0.tar", 0)
        code, text = self.lab.run(*bare, SDPREP, "encode", "--recipe", self.recipe, "--in", source, "--out", out + "2")
        self.assertEqual(code, 1, text)
        self.assertRegex(text, "0.tar: Permission denied")

    def test_two_recipes_at_once(self):
        out = self.lab.path("two")
        other = self.write_recipe("two", resample="bicubic")
        lives = [self.start(out, None, "--recipe", recipe) for recipe in (self.recipe, other)]
        ends = sorted(self.end(life) for life in lives)
        self.assertEqual([code for code, _ in ends], [0, 1], ends)
        self.assertIn("of another encoding", ends[1][1])
        self.assertEqual(len(samples(out)), 32)

    @unittest.skipUnless(os.path.exists(CLOCK), "no library can be preloaded here")
    def test_a_clock_that_jumps(self):
        out, clock = self.lab.path("clock-out"), self.lab.write("clock", "86400")
        self.addCleanup(setattr, self.lab, "environment", self.lab.environment)
        self.lab.environment = dict(self.lab.environment, LD_PRELOAD=CLOCK, CHAOS_CLOCK=clock)
        life = self.start(out, "encode.picture=stop@9")
        until(lambda: process_state(life.pid) == "T", "the process to be stopped")
        self.lab.write("clock", "-86400")
        life.send_signal(signal.SIGCONT)
        code, text = self.end(life)
        self.assertEqual(code, 0, text)
        self.check(out, "clock")

    def test_what_lies_about(self):
        """Objects of others in the folder are left alone; a report that is none is named."""
        out = self.lab.path("about")
        for name, text in (("notes.txt", "mine"), ("u-notes", "mine"), ("encoding/notes", "mine")):
            self.lab.write("about/" + name, text)
        self.assertEqual(self.encode(self.recipe, out, fault="encode.part.report=kill@2")[0], -signal.SIGKILL)
        report = os.path.join(out, "encoding/u00000-p0000.json")
        with open(report) as file:
            good = file.read()
        for text in ("", "{}", good[:-20], json.dumps(dict(json.loads(good), raw=-1)), json.dumps(dict(json.loads(good), raw=1 << 40))):
            self.lab.write("about/encoding/u00000-p0000.json", text)
            code, said = self.encode(self.recipe, out)
            self.assertEqual(code, 1, said)
            self.assertRegex(said, "remove .*/encoding/u00000-p0000.json, and start again|00000.tar has fewer samples", text)
        os.remove(report)
        # What is said to be removed is all that has to go.
        self.assertEqual(self.encode(self.recipe, out, fault="encode.unit.report=kill@1")[0], -signal.SIGKILL)
        for name, text, words in (("encoding/u00000.json", "{}", "remove .*/(encoding/u00000.json), and start again"),
                                  ("rejects/u00000.jsonl", None, "not there any more: remove (encoding/u00000.json), and start again"),
                                  ("rejects/u00000.jsonl", "{}", "remove (rejects/u00000.jsonl) and (encoding/u00000.json), and start")):
            if text is None:
                os.remove(os.path.join(out, name))
            else:
                self.lab.write("about/" + name, text)
            code, said = self.encode(self.recipe, out)
            self.assertEqual(code, 1, said)
            self.assertRegex(said, words)
            for name in re.search(words, said).groups():
                os.remove(os.path.join(out, name))
            self.assertEqual(self.encode(self.recipe, out, fault="encode.finish.listed=kill")[0], -signal.SIGKILL)
        code, said = self.encode(self.recipe, out)
        self.assertEqual(code, 0, said)
        found = tree(out)
        self.assertEqual([found.pop(name) for name in ("notes.txt", "u-notes", "encoding/notes")], [b"mine"] * 3)
        self.assertEqual(found, self.reference)

    def test_a_line_each_ten_seconds(self):
        """Also while a part takes long: each picture of it takes 100 ms, or 12 s in all. What an earlier life has done is not
        taken for what this one does in its time."""
        source, out = self.lab.path("slow"), self.lab.path("slow-out")
        write_tar(source + "/0.tar", [("done%03d.txt" % i, b"c") for i in range(121)] + [("done120.npy", b"\0" * (20 << 20))] +
                  [member for i in range(120) for member in self.picture(i % 30, "%03d" % i)] + [("none.txt", b"c")])
        write_tar(source + "/1.tar", [("none.txt", b"c"), ("none.npy", b"\0" * (10 << 20))])
        recipe = self.write_recipe("slow", shard_samples=121, max_rejected=1)
        code, text = self.encode(recipe, out, source=source, fault="encode.part.report=kill@1")
        self.assertEqual(code, -signal.SIGKILL, text)
        life = self.start(out, "encode.picture=slow@*", "--cost-per-hour", "3.6", "--recipe", recipe, source=source)
        code, text = self.end(life)
        self.assertEqual(code, 0, text)
        lines = [line.split("sdprep: ")[1] for line in text.splitlines() if "a second" in line]
        self.assertGreater(len(lines), 1)
        self.assertRegex(lines[0], r"^\d+ samples, \d+\.\d a second, \d+\.\d % of the input; left \d+:\d\d:\d\d; 0 rejected \(none\); "
                                   r"cost 0\.\d\d, in all \d+\.\d\d$")
        hours, minutes, seconds = map(int, re.search(r"left (\d+):(\d\d):(\d\d);", lines[0]).groups())
        self.assertGreater(3600 * hours + 60 * minutes + seconds, 30, lines[0])
        self.assertRegex(lines[-1], r"^122 samples, .* 100\.0 % of the input; left 0:00:00; 2 rejected \(2 no-image\); cost")


if __name__ == "__main__":
    unittest.main(verbosity=2)
