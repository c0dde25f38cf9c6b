#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Input of sdprep encode that changes: a tar or shard that somebody exchanges between two lives, between two processes, or
while it is read. What was encoded of the former one is never mixed with the other: the unit is set aside by its name, all
others are made, and with the former one back the dataset is the one of an undisturbed run."""
import ctypes
import hashlib
import json
import os
import shutil
import signal
import struct
import unittest

from encoded import EncodeCase, tree, write_tar
from lab import process_state, until

TAR = "00002.tar"  # 20 samples, in four parts


class Halves(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def xxh3_128(data):
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_128bits.restype, library.XXH3_128bits.argtypes = Halves, [ctypes.c_char_p, ctypes.c_size_t]
    digest = library.XXH3_128bits(data, len(data))
    return "%016x%016x" % (digest.high, digest.low)


class Input(EncodeCase):
    def copy(self, name):
        """The input, each file as old as it was."""
        source = self.lab.path(name)
        shutil.copytree(self.lab.path("raw"), source)
        return source

    def exchange(self, source, as_old=True, keys=None, pictures=None, tar=TAR):
        """Another tar with the same members in its place, but for some keys or pictures; of the same size."""
        path, members = os.path.join(source, tar), []
        status = os.stat(path)
        for i in range(14, 34):
            key = "%09d" % (keys or {}).get(i, i)
            members += [(key + ".png", (pictures or {}).get(i, self.pictures[i]))]
            members += [(key + ".txt", b"a caption, number %d" % i)] if i != 20 else []
            members += [(key + ".json", json.dumps({"width": i, "score": i / 2}).encode())]
        write_tar(path + ".new", members)
        os.replace(path + ".new", path)
        self.assertEqual(os.path.getsize(path), status.st_size)
        if as_old:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return status

    def restore(self, source):
        shutil.copy2(self.lab.path("raw", TAR), os.path.join(source, TAR))

    def flipped(self, i):
        """The picture with another last byte of its pixels' checksum: of equal size, and decoded alike."""
        return {i: self.pictures[i][:-1] + bytes([self.pictures[i][-1] ^ 1])}

    def begin(self, name, source, fault="encode.part.report=kill@6"):
        """A life that dies behind the second part of the third unit."""
        out = self.lab.path(name)
        code, text = self.encode(self.recipe, out, source=source, fault=fault)
        self.assertEqual(code, -signal.SIGKILL, text)
        self.assertIn("encoding/u00002-p0001.json", sorted(tree(out)))
        return out

    def same(self, out, source):
        """The dataset of an undisturbed run, but for versions of what it was made of."""
        found = tree(out)
        self.assertEqual(sorted(found), sorted(self.reference))
        encoder = json.loads(found["encoder.json"])
        for name, digest in encoder["files"].items():
            self.assertEqual(digest, xxh3_128(found[name]), name)
        reference = json.loads(self.reference["encoder.json"])
        encoder["files"].pop("encoding/input.json"), reference["files"].pop("encoding/input.json")
        self.assertEqual(encoder, reference)
        for name in set(found) - {"encoder.json", "encoding/input.json"}:
            self.assertEqual(found[name], self.reference[name], name)

    def refused(self, out, source, *words, **options):
        before = tree(out)
        code, text = self.encode(self.recipe, out, source=source, **options)
        self.assertEqual(code, 1, text)
        for word in words:
            self.assertIn(word, text)
        self.assertIn("1 of 3 units are not what they should be and were set aside", text)
        found = tree(out)
        for name in found:
            if "u00002" in name:
                self.assertEqual(found[name], before.get(name), name)
        self.assertNotIn("index.json", sorted(found))
        return text

    def test_the_list(self):
        units = json.loads(self.reference["encoding/input.json"])
        self.assertEqual([unit["name"] for unit in units["units"]], ["00000.tar", "00001.tar", "00002.tar"])
        for unit in units["units"]:
            status = os.stat(self.lab.path("raw", unit["name"]))
            self.assertEqual(unit["bytes"], status.st_size)
            self.assertEqual(unit["version"], "%d-%d.%09d-%d" % (status.st_ino, *divmod(status.st_mtime_ns, 10**9), status.st_size))
        self.assertNotIn("index_xxh3_128", units)
        self.same(self.out, self.lab.path("raw"))

    def test_between_two_lives(self):
        source = self.copy("lives")
        out = self.begin("lives-out", source)
        self.exchange(source, as_old=False, keys={i: 100 + i for i in range(24, 34)})
        text = self.refused(out, source, "00002.tar has changed since file://%s was begun: its version was " % out)
        noted = json.loads(tree(out)["encoding/input.json"])["units"][2]["version"]
        self.assertIn(noted, text)
        self.assertIn("1 of 3 units of the input have changed", text)
        # The former one is back, as a copy, which is another file of the same time and size.
        self.restore(source)
        code, text = self.encode(self.recipe, out, source=source)
        self.assertEqual(code, 0, text)
        self.assertNotIn("have changed", text)
        self.same(out, source)

    def test_as_old_as_the_former(self):
        """Neither time nor size tells; names or bytes of what is passed over do."""
        for name, changes, words in (("names", {"keys": {14: 900}}, "names, sizes or places"),
                                     ("bytes", {"pictures": self.flipped(15)}, "members with other bytes")):
            source = self.copy("old-" + name)
            out = self.begin("old-%s-out" % name, source)
            self.exchange(source, **changes)
            self.refused(out, source, "00002.tar has changed", "u00002-p0000.json was made of", words)
            self.restore(source)
            code, text = self.encode(self.recipe, out, source=source)
            self.assertEqual(code, 0, text)
            self.same(out, source)

    def test_names_in_place(self):
        """The same file, of the same time, written over: its members' names tell."""
        source = self.copy("place")
        out = self.begin("place-out", source)
        path = os.path.join(source, TAR)
        status = os.stat(path)
        with open(path, "rb") as file:
            data = file.read()
        self.exchange(source, keys={14: 900})
        with open(path, "rb") as file:
            other = file.read()
        shutil.copy2(self.lab.path("raw", TAR), path)  # keeps the inode
        with open(path, "r+b") as file:
            file.write(other)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        self.refused(out, source, "names, sizes or places")
        self.assertNotEqual(data, other)

    def test_the_same_bytes_anew(self):
        """Somebody's word that the bytes are the same is taken, and the list is made anew."""
        source = self.copy("anew")
        out = self.begin("anew-out", source)
        os.utime(os.path.join(source, TAR), (1, 1))
        self.refused(out, source, "remove encoding/input.json and start again")
        os.remove(os.path.join(out, "encoding/input.json"))
        code, text = self.encode(self.recipe, out, source=source)
        self.assertEqual(code, 0, text)
        self.same(out, source)

    def test_while_it_is_read(self):
        """Nothing is put of a part that may be of both."""
        source, out = self.copy("read"), self.lab.path("read-out")
        life = self.start(out, "encode.unit.changes=stop@9", source=source)  # two parts of the third unit were put
        until(lambda: process_state(life.pid) == "T", "the process to be stopped")
        before = tree(out)
        self.exchange(source, as_old=False)
        life.send_signal(signal.SIGCONT)
        code, text = self.end(life)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"00002.tar has changed while it was read: its version was \S+, and is \S+")
        self.assertTrue(tree(out) == before)
        self.assertIn("u00002-p0001.mds", sorted(before))
        self.assertNotIn("u00002-p0002.mds", sorted(before))
        # One that has gone is told as such.
        life = self.start(out + "2", "encode.unit.changes=stop@9", source=source)
        until(lambda: process_state(life.pid) == "T", "the process to be stopped")
        os.remove(os.path.join(source, TAR))
        life.send_signal(signal.SIGCONT)
        code, text = self.end(life)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, "00002.tar: no such object")

    def test_between_two_processes(self):
        """Two work at one unit, and read different bytes of it."""
        source, out = self.copy("two"), self.lab.path("two-out")
        first = self.start(out, "encode.part.made=stop@6", source=source)
        until(lambda: process_state(first.pid) == "T", "the process to be stopped")
        # It has read the second part of the third unit, and not yet put it.
        self.exchange(source, pictures=self.flipped(19))
        second = self.start(out, "encode.part.report=stop@1", source=source)
        until(lambda: process_state(second.pid) == "T", "the second process to be stopped")
        first.send_signal(signal.SIGCONT)
        code, text = self.end(first)
        second.kill()
        second.wait()
        self.assertEqual(code, 1, text)
        self.assertIn("u00002-p0001.json was made of members with other bytes", text)

    def test_a_shard_made_again(self):
        """A part whose shard has gone must come out as it was, or nothing is put."""
        source = self.copy("again")
        out = self.begin("again-out", source)
        os.remove(os.path.join(out, "u00002-p0001.mds"))
        self.exchange(source, pictures=self.flipped(19))
        self.refused(out, source, "it is made again", "u00002-p0001.json was made of members with other bytes")
        self.assertNotIn("u00002-p0001.mds", sorted(tree(out)))
        # One of another size is not a shard of its report.
        self.restore(source)
        with open(os.path.join(out, "u00002-p0000.mds"), "ab") as file:
            file.write(b"x")
        code, text = self.encode(self.recipe, out, source=source)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"u00002-p0000.mds has \d+ bytes, not \d+: remove it, and start again")
        os.remove(os.path.join(out, "u00002-p0000.mds"))
        code, text = self.encode(self.recipe, out, source=source)
        self.assertEqual(code, 0, text)
        self.same(out, source)

    def test_finished(self):
        """What was made stays; that the input is another one since is told."""
        source, out = self.copy("finished"), self.lab.path("finished-out")
        self.assertEqual(self.encode(self.recipe, out, source=source)[0], 0)
        before = tree(out)
        self.exchange(source, as_old=False)
        code, text = self.encode(self.recipe, out, source=source)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, "1 of 3 units of the input have changed since .*finished-out was begun; the first: 00002.tar, whose version was")
        self.assertTrue(tree(out) == before)

    def test_of_a_version_before(self):
        """A folder under way without a list, whose reports have no hashes of what they were made of, goes on."""
        source = self.copy("before")
        out = self.begin("before-out", source)
        os.remove(os.path.join(out, "encoding/input.json"))
        for name in ("encoding/u00002-p0000.json", "encoding/u00002-p0001.json"):
            path = os.path.join(out, name)
            with open(path) as file:
                report = json.load(file)
            self.assertEqual(len(report.pop("raw_members_xxh3_128") + report.pop("raw_bytes_xxh3_128")), 64)
            with open(path, "w") as file:
                json.dump(report, file)
        code, text = self.encode(self.recipe, out, source=source)
        self.assertEqual(code, 0, text)
        self.same(out, source)

    def test_a_list_that_is_none(self):
        source = self.copy("none")
        out = self.begin("none-out", source)
        path = os.path.join(out, "encoding/input.json")
        for text, words in ((b"{", "encoding/input.json: "), (b'{"units": [{"name": "x", "bytes": -1, "version": ""}]}', "bytes"),
                            (b'{"units": []}', "00000.tar is new in it")):
            with open(path, "wb") as file:
                file.write(text)
            code, said = self.encode(self.recipe, out, source=source)
            self.assertEqual(code, 1, said)
            self.assertIn(words, said)
        with open(path, "wb") as file:
            file.write(self.reference["encoding/input.json"].replace(b"00001.tar", b"00009.tar"))
        code, said = self.encode(self.recipe, out, source=source)
        self.assertEqual((code, "00001.tar is new in it" in said), (1, True), said)

    def write_mds(self, folder, hashes, captions=b"a  caption, number %d"):
        """Raw pictures as two shards of an MDS dataset."""
        os.makedirs(folder, exist_ok=True)
        config = {"column_encodings": ["str", "bytes"], "column_names": ["caption", "image"], "column_sizes": [None, None],
                  "compression": None, "format": "mds", "hashes": hashes, "size_limit": 1 << 26, "version": 2}
        shards = []
        for shard in range(2):
            rows = []
            for i in range(10 * shard, 10 * shard + 10):
                fields = [captions % i, self.pictures[i]]
                rows.append(b"".join(struct.pack("<I", len(field)) for field in fields) + b"".join(fields))
            head = json.dumps(config, sort_keys=True).encode()
            offsets = [4 + 4 * (len(rows) + 1) + len(head)]
            for row in rows:
                offsets.append(offsets[-1] + len(row))
            data = struct.pack("<%dI" % (len(rows) + 2), len(rows), *offsets) + head + b"".join(rows)
            name = "shard.%05d.mds" % shard
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
            digests = {"sha256": hashlib.sha256(data).hexdigest()} if hashes else {}
            shards.append(dict(config, samples=len(rows), zip_data=None,
                               raw_data={"basename": name, "bytes": len(data), "hashes": digests}))
        with open(os.path.join(folder, "index.json"), "w") as file:
            json.dump({"shards": shards, "version": 2}, file, sort_keys=True)

    def test_shards(self):
        """Without hashes shards have versions; with them index.json has all that is needed, and has a hash itself."""
        recipe = self.write_recipe("mds", columns={"image": "image", "caption": "caption"})
        for name, hashes in (("plain", []), ("hashed", ["sha256"])):
            source, out, whole = self.lab.path("mds-" + name), self.lab.path("mds-out-" + name), self.lab.path("mds-whole-" + name)
            self.write_mds(source, hashes)
            code, text = self.encode(recipe, whole, source=source)
            self.assertEqual(code, 0, text)
            code, text = self.encode(recipe, out, source=source, fault="encode.part.report=kill@3")
            self.assertEqual(code, -signal.SIGKILL, text)
            units = json.loads(tree(out)["encoding/input.json"])
            self.assertEqual(units["index_xxh3_128"], xxh3_128(tree(source)["index.json"]))
            self.assertEqual([bool(unit["version"]) for unit in units["units"]], [not hashes] * 2)
            shutil.copytree(source, source + "-former")
            self.write_mds(source, hashes, captions=b"no caption, number %d")
            if hashes:
                code, text = self.encode(recipe, out, source=source)
                self.assertEqual(code, 1, text)
                self.assertIn("its units have the same names and sizes, but the xxh3_128 of its index.json was", text)
                shutil.copy2(source + "-former/index.json", source + "/index.json")
            code, text = self.encode(recipe, out, source=source)
            self.assertEqual(code, 1, text)
            self.assertIn("set aside", text)
            self.assertIn("shard.00001.mds", text)
            if not hashes:
                self.assertIn("shard.00001.mds has changed since", text)
            for file in os.listdir(source):
                shutil.copy2(os.path.join(source + "-former", file), os.path.join(source, file))
            code, text = self.encode(recipe, out, source=source)
            self.assertEqual(code, 0, text)
            self.assertEqual({file: data for file, data in tree(out).items() if file.endswith(".mds")},
                             {file: data for file, data in tree(whole).items() if file.endswith(".mds")})


if __name__ == "__main__":
    unittest.main()
