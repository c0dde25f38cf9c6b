#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ops/packages with SDTRAIN_INSTALL=no: nothing is installed or fetched, and what is missing is named. Options that ops/test refuses."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["SDTRAIN_SOURCE"])
# A dpkg-query that has all packages but those of $MISSING; whatever would install or fetch writes down that it was called.
QUERY = '#!/bin/sh\nfor last; do :; done\ncase " $MISSING " in *" $last "*) exit 1 ;; esac\nprintf installed\n'
CALLED = '#!/bin/sh\necho "$0 $*" >>"$CALLS"\nexit 1\n'


class Packages(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="sdtrain-test-packages-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        (self.scratch / "ops").mkdir()
        (self.scratch / "bin").mkdir()
        for name in ("packages", "test"):
            shutil.copy(ROOT / "ops" / name, self.scratch / "ops" / name)
        for name, text in {"dpkg-query": QUERY, **dict.fromkeys(("apt-get", "sudo", "python3", "tee", "cmake"), CALLED)}.items():
            (self.scratch / "bin" / name).write_text(text)
            (self.scratch / "bin" / name).chmod(0o755)

    def run_(self, *words, missing="", install="no"):
        environment = {key: value for key, value in os.environ.items() if key != "SDTRAIN_CUDNN_FRONTEND"} | {
            "PATH": f"{self.scratch / 'bin'}:{os.environ['PATH']}", "MISSING": missing, "CALLS": str(self.scratch / "calls"), "SDTRAIN_INSTALL": install}
        done = subprocess.run([str(self.scratch / words[0]), *words[1:]], env=environment, text=True, capture_output=True)
        return done.returncode, done.stderr

    def called(self):
        path = self.scratch / "calls"
        return path.read_text() if path.exists() else ""

    def test_nothing_is_missing(self):
        self.assertEqual(self.run_("ops/packages", "build"), (0, ""))

    def test_what_is_missing_is_named(self):
        status, said = self.run_("ops/packages", "build", missing="ninja-build libexpat1-dev")
        self.assertEqual(status, 1)
        self.assertEqual(said, "ops/packages: missing, and not installed with SDTRAIN_INSTALL=no: libexpat1-dev ninja-build\n")
        self.assertEqual(self.called(), "")

    def test_headers_are_not_fetched(self):
        status, said = self.run_("ops/packages", "gpu")
        self.assertEqual(status, 1)
        self.assertRegex(said, "^ops/packages: missing, and not fetched with SDTRAIN_INSTALL=no: the headers of nvidia-cudnn-frontend [0-9.]+\n$")
        self.assertEqual(self.called(), "")

    def test_otherwise_it_installs(self):
        status, _ = self.run_("ops/packages", "build", missing="ninja-build", install="yes")
        self.assertNotEqual(status, 0)
        self.assertNotEqual(self.called(), "")

    def test_a_run_of_all_tests(self):
        status, said = self.run_("ops/test", "--no-install", missing="gdb", install="yes")
        self.assertEqual(status, 1)
        self.assertIn("SDTRAIN_INSTALL=no: gdb", said)
        self.assertEqual(self.called(), "")

    def test_a_part_of_the_tests_is_not_recorded(self):
        for words in (["--quick"], ["-R", "x"]):
            status, said = self.run_("ops/test", "--record", *words)
            self.assertEqual((status, said), (2, "ops/test: --record is of all tests: not with --quick or -R\n"))

    def test_what_must_download_is_refused(self):
        for flag in ("--interop", "--full-size", "--packages"):
            status, said = self.run_("ops/test", "--no-install", flag)
            self.assertEqual(status, 2)
            self.assertIn("not with --no-install", said)


if __name__ == "__main__":
    unittest.main()
