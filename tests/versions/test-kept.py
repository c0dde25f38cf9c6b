#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each version wrote (tests/golden/versions) is read by this one without a loss: every field of every record and
message, the manifest, the job file; and `sdtrainer run` goes on from its checkpoint to the digest that was kept."""
import json
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../system"))
import lab
import versions


def kinds(path):
    with open(path) as file:
        return {line.split("\t")[0] for line in file}


class Kept(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = lab.Lab()
        cls.addClassCleanup(cls.lab.close)

    def each(self, check):
        self.assertTrue(versions.listed())
        for version, _ in versions.listed():
            with self.subTest(version):
                check(version, os.path.join(versions.GOLDEN, version))

    def program(self, name, *arguments):
        code, text = self.lab.run(os.path.join(lab.BIN, name), *arguments)
        self.assertEqual(code, 0, text)
        return text

    def test_every_field(self):
        self.each(lambda _, folder: self.program("version-fields", "read", folder + "/fields"))

    def test_records_of_a_cluster(self):
        """Of every kind that the version has, one at least."""
        def check(_, folder):
            self.program("version-fields", "read", folder + "/records")
            wanted = {kind for kind in kinds(folder + "/fields") if not kind.startswith("channel ")}
            self.assertEqual(kinds(folder + "/records"), wanted)
        self.each(check)

    def test_own_fields(self):
        """What this version writes it reads: the tables are compared with themselves."""
        lines = self.lab.write("fields", self.program("version-fields", "write"))
        self.program("version-fields", "read", lines)
        self.each(lambda _, folder: self.assertEqual(kinds(folder + "/fields") - kinds(lines), set()))

    def test_goes_on(self):
        def check(version, folder):
            manifest, = [os.path.join(where, name) for where, _, names in os.walk(folder + "/checkpoint")
                         for name in names if name == "manifest.json"]
            self.program("version-manifests", manifest)
            with open(folder + "/outcome.json") as file:
                outcome = json.load(file)
            copy = self.lab.path("kept-" + version)
            shutil.copytree(folder, copy)
            with open(folder + "/job.json") as file:
                job = json.loads(file.read().replace("FOLDER", copy))
            code, text = self.lab.train(job)
            self.assertEqual(code, 0, text)
            self.assertIn("goes on from step %d," % outcome["from_step"], text)
            self.assertEqual([line["loss_hex"] for line in self.lab.metrics(job)], outcome["loss_hex"])
            self.assertEqual((self.lab.manifests(job)[-1][1]["step"], self.lab.digest(job)),
                             (outcome["step"], outcome["digest"]))
        self.each(check)


if __name__ == "__main__":
    unittest.main(verbosity=2)
