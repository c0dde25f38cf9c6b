#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a test takes is written down, and what is written down becomes the tables of docs/figures.md."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["SDTRAIN_SOURCE"])
MEASURE = pathlib.Path(os.environ["SDTRAIN_BIN"]) / "measure-test"
BUSY = "import time; began = time.process_time()\nwhile time.process_time() < began + 0.3: pass"
PAGE = "# Figures\n\n<!-- begin: ci-steps -->\n\n<!-- end -->\n\ntext\n\n<!-- begin: ci-tests -->\n| old | x |\n<!-- end -->\nend\n"


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="sdtrain-test-times-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.times = self.scratch / "times"
        self.environment = {key: value for key, value in os.environ.items() if key not in ("SDTRAIN_TEST_TIMES", "SDTRAIN_CTEST_PID")}


class Measured(Case):
    def measure(self, *command, times=True):
        environment = self.environment | ({"SDTRAIN_TEST_TIMES": str(self.times)} if times else {})
        return subprocess.run([MEASURE, "test-x", *command], env=environment, text=True, capture_output=True)

    def lines(self):
        return [line.split() for line in self.times.read_text().splitlines()]

    def test_a_line_for_each_test(self):
        self.measure("true")
        # What a child of the test's used is the test's, too.
        self.measure("sh", "-c", f'{sys.executable} -c "$1"; true', "sh", BUSY)
        (first, *none), (second, wall, user, kernel) = self.lines()
        self.assertEqual([first, second], ["test-x", "test-x"])
        self.assertLess(sum(map(float, none)), 30)
        self.assertGreaterEqual(float(user) + float(kernel), 0.29)
        self.assertGreaterEqual(float(wall), 0.29)

    def test_waiting_is_not_the_processors(self):
        self.measure("sleep", "0.5")
        (_, wall, user, kernel), = self.lines()
        self.assertGreaterEqual(float(wall), 0.5)
        self.assertLess(float(user) + float(kernel), 0.4)

    def test_the_end_is_the_tests(self):
        for times in (True, False):
            self.assertEqual(self.measure("sh", "-c", "exit 7", times=times).returncode, 7)
            self.assertEqual(self.measure("sh", "-c", "kill -SEGV $$", times=times).returncode, -signal.SIGSEGV)
            done = self.measure("/there/is/no/such", times=times)
            self.assertEqual(done.returncode, 127)
            self.assertEqual(done.stderr, "measure-test: /there/is/no/such: No such file or directory\n")
        self.assertEqual(len(self.lines()), 3)

    def test_without_a_file_it_is_the_test(self):
        done = self.measure("sh", "-c", "echo $PPID $SDTRAIN_CTEST_PID", times=False)
        self.assertEqual(done.stdout, f"{os.getpid()}\n")

    def test_the_test_knows_ctest(self):
        done = self.measure("sh", "-c", "echo $SDTRAIN_CTEST_PID $SDTRAIN_TEST_TIMES")
        self.assertEqual(done.stdout, f"{os.getpid()}\n")

    def test_a_test_ends_with_what_measures_it(self):
        process = subprocess.Popen([MEASURE, "test-x", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE,
                                   env=self.environment | {"SDTRAIN_TEST_TIMES": str(self.times)})
        process.stdout.read(1)
        process.kill()
        process.wait()
        self.assertEqual(process.stdout.read(), b"")  # its end: nobody holds the pipe any more
        process.stdout.close()

    def test_a_file_that_cannot_be_written(self):
        self.times = self.scratch / "none/times"
        done = self.measure("sh", "-c", "exit 7")
        self.assertEqual(done.returncode, 7)
        self.assertIn(f"measure-test: {self.times}: No such file", done.stderr)

    def test_too_few_words(self):
        self.assertEqual(subprocess.run([MEASURE, "test-x"], stderr=subprocess.DEVNULL).returncode, 2)


class Tables(Case):
    def setUp(self):
        super().setUp()
        (self.scratch / "ops").mkdir()
        (self.scratch / "docs").mkdir()
        for name in ("times", "figures.py"):
            shutil.copy(ROOT / "ops" / name, self.scratch / "ops" / name)
        (self.scratch / "docs/figures.md").write_text(PAGE)
        self.folder = self.scratch / "build/times"
        self.folder.mkdir(parents=True)
        (self.folder / "steps").write_text("release, built: 60.0 100.0 10.0\nTerminated\nasan, built ahead: 50.0 40.0 4.0\n"
                                           "asan, built ahead: 10.0 8.0 1.0\nrelease, tested: 1000.0 300.0 30.5\n")
        (self.folder / "release").write_text("".join(f"test-{i} {i}.0 1.0 0.4\n" for i in range(1, 31)))
        (self.folder / "asan").write_text("test-5 500.0 2.0 1.0\n")

    def times_(self, *words):
        return subprocess.run([self.scratch / "ops/times", *words], env=self.environment, text=True, capture_output=True)

    def test_steps(self):
        done = self.times_("--steps")
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        self.assertEqual(done.stdout.strip().splitlines(), [
            "| step | wall | user | kernel |", "|---|---|---|---|", "| asan, built ahead |  | 48 s | 5 s |", "| release, built | 60 s | 100 s | 10 s |",
            "| release, tested | 1,000 s | 300 s | 30 s |", "| all | 1,060 s | 448 s | 46 s |"])

    def test_the_dearest_tests(self):
        tests = [line for line in self.times_().stdout.splitlines() if line.startswith("| test-")]
        self.assertEqual(len(tests), 20)
        self.assertEqual(tests[:2], ["| test-5 (asan) | 500 s | 2 s | 1 s |", "| test-30 (release) | 30 s | 1 s | 0 s |"])

    def test_figures(self):
        for _ in range(2):  # the second time over the tables of the first
            self.assertEqual(self.times_("--figures").returncode, 0)
            text = (self.scratch / "docs/figures.md").read_text()
            self.assertRegex(text, r"\A# Figures\n\n<!-- begin: ci-steps -->\n\nOn \d{4}-\d\d-\d\d:\n\n\| step(.*\n){6}\n<!-- end -->\n\ntext\n\n"
                                   r"<!-- begin: ci-tests -->\n\nOn \d{4}-\d\d-\d\d:\n\n\| test (.*\n){22}\n<!-- end -->\nend\n\Z")

    def test_without_a_run(self):
        (self.folder / "steps").unlink()
        done = self.times_()
        self.assertEqual(done.returncode, 1)
        self.assertIn("run ops/test", done.stderr)


if __name__ == "__main__":
    unittest.main()
