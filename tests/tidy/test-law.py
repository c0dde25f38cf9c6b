#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of tidy.py for folders, by breaking each in a copy of this tree."""
import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Law(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="sdtrain-test-law-")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.tree = pathlib.Path(cls.scratch.name) / "tree"
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True).stdout.decode().split("\0")
        for name in filter(lambda name: name != ".gitignore" and (ROOT / name).is_file(), listed):
            (cls.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (cls.tree / name).symlink_to(ROOT / name)
        bare = pathlib.Path(cls.scratch.name) / "bin"  # without clang-format, which takes long
        bare.mkdir()
        for name in ("git", "sh"):
            (bare / name).symlink_to(shutil.which(name))
        cls.environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | {
            "PATH": str(bare), "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": cls.scratch.name, "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(["git", "init", "-q"], cwd=cls.tree, env=cls.environment, check=True)

    def look_at(self, *cases):
        """tidy.py takes seconds: a case breaks a rule, yields, and then looks at the lines of one run for all cases."""
        begun = [case() for case in cases]
        for case in begun:
            next(case)
        self.lines = self.problems()
        for case in begun:
            with self.subTest(case.__name__):
                self.assertEqual(list(case), [])

    def problems(self):
        subprocess.run(["git", "add", "-A"], cwd=self.tree, env=self.environment, check=True)
        done = subprocess.run([sys.executable, "tests/tidy/tidy.py", "."], cwd=self.tree, env=self.environment, text=True, capture_output=True)
        self.assertEqual(done.stderr, "")
        return [line for line in done.stdout.splitlines() if not line.startswith(("tidy: ", "clang-format is missing"))]

    def change(self, name, old, new):
        path = self.tree / name
        text = path.read_text()
        self.assertEqual(text.count(old), 1, f"{name} has {old!r} {text.count(old)} times")
        path.unlink()
        path.write_text(text.replace(old, new))
        self.addCleanup(lambda: (path.unlink(), path.symlink_to(ROOT / name)))

    def line_of(self, name, text):
        return next(number for number, line in enumerate((self.tree / name).read_text().splitlines(), 1) if text in line and not line.startswith("/*"))

    def test_as_it_is(self):
        self.assertEqual(self.problems(), [])

    def test_rules(self):
        cases = {case for _, case in inspect.getmembers(self, inspect.isgeneratorfunction)}
        self.look_at(*cases - {self.a_planted_bug_that_fits_nowhere})

    def test_planted_bugs(self):
        self.look_at(self.a_planted_bug_that_fits_nowhere)  # by itself: marks are looked at only when all bugs fit

    def an_include_that_no_row_has(self):
        self.change("nn/ddim.c", '#include "nn/ddim.h"\n', '#include "nn/ddim.h"\n#include "data/order.h"\n')
        yield
        self.assertIn("nn/ddim.c:5: nn/ may not include data/order.h", self.lines)

    def production_does_not_include_tests(self):
        self.change("nn/finite.c", '#include "nn/finite.h"\n', '#include "nn/finite.h"\n#include "base/test/testing.h"\n')
        yield
        self.assertIn("nn/finite.c:4: nn/ may not include base/test/testing.h", self.lines)

    def a_circle(self):
        self.change("base/clock.c", '#include "base/clock.h"\n', '#include "base/clock.h"\n#include "store/store.h"\n')
        self.change("tests/tidy/tidy.py", '    "base": [],\n', '    "base": ["store"],\n')
        yield
        self.assertIn("tests/tidy/tidy.py: LAW: base includes store, which is not a row above it", self.lines)

    def a_right_that_nobody_uses(self):
        self.change("tests/tidy/tidy.py", '    "metrics": ["base"],\n', '    "metrics": ["base", "protocol"],\n')
        yield
        self.assertIn("tests/tidy/tidy.py: LAW: metrics does not include protocol", self.lines)

    def the_order_of_cmake(self):
        self.change("CMakeLists.txt", "store kernels health metrics nn", "kernels health metrics nn store")
        yield
        self.assertIn("CMakeLists.txt: nn includes store, which does not stand before it", self.lines)

    def the_pictures(self):
        name = "docs/internals/architecture.md"
        self.change(name, " 3   nn         data                  cluster\n", " 3   nn                               cluster   report\n")
        yield
        self.assertIn(f"{name}: the picture of floors lacks data", self.lines)
        self.assertIn(f"{name}: report includes cluster, which stands no lower", self.lines)

    def the_picture_of_a_room(self):
        name = "docs/internals/architecture.md"
        self.change(name, " prep        raw < encode < prep\n", " prep        raw, encode < prep, cook\n")
        yield
        problems = self.lines
        self.assertIn(f"{name}: prep/encode includes prep/raw, which does not stand before it", problems)
        self.assertIn(f"{name}: the picture of rooms has prep/cook, which is not a folder", problems)

    def modules_of_a_folder(self):
        for i in range(6):
            path = self.tree / f"nn/extra-{i}.c"
            path.write_text("/* SPDX-License-Identifier: Apache-2.0 */\n")
            self.addCleanup(path.unlink)
        yield
        self.assertIn("nn: 17 modules in a folder", self.lines)

    def the_english(self):
        path = self.tree / "health/extra.c"
        path.write_text("/* SPDX-License-Identifier: Apache-2.0 */\n/* A network that is no network. There is no other, and it is no longer. */\n"
                        "/* x.h - what it is.\n *\n * What follows is headless. Of course not. What is it? */\n")
        self.addCleanup(path.unlink)
        yield
        self.assertEqual([line for line in self.lines if "extra.c" in line], [
            'health/extra.c:5: a sentence that opens with "What" (What follows is headless....): name its noun',
            'health/extra.c:2: "is no network": say "is not"'])

    def a_planted_bug_that_fits_nowhere(self):
        self.change("tests/mutants/comm.bugs", "bug: abort-is-taken-for-a-dead-peer\n", "bug: x\nwhy: x\nfunction: no_such_function\ntest: x\n<<<\na\n===\nb\n>>>\n\nbug: y\n")
        yield
        found = [line for line in self.lines if "planted" in line or "tests/mutants" in line]
        self.assertEqual(len(found), 1, found)
        self.assertRegex(found[0], r"tests/mutants: \S+: 0 functions no_such_function\(\) have its old text once")

    def a_mark_that_fits_no_change(self):
        was = "was  if (fds.program >= 0)\n"
        self.change("tests/mutants/equal.txt", was, was.replace(">=", "=="))
        yield
        found = [line for line in self.lines if "equal.txt" in line]
        self.assertEqual(found, ["tests/mutants/equal.txt: daemon/process/spawn.c: no operator makes this change, delete the mark or write the line anew:"])

    def a_function_that_only_tests_call(self):
        self.change("controller/core/cluster.h", "/* For tests and the simulator, because", "/* Because")
        yield
        self.assertEqual([line for line in self.lines if "cluster.h" in line], [
            f"controller/core/cluster.h:{self.line_of('controller/core/cluster.h', 'cluster_check(')}: only tests call cluster_check(): delete it, "
            'or begin its comment with "For tests" or "For the documents"'])

    HEAD = "/* SPDX-License-Identifier: Apache-2.0 */\n/* {}.h - an example.\n *\n{} */\n#pragma once\n"

    def headers(self, folder, **labels):
        (self.tree / folder).mkdir()
        self.addCleanup(lambda: shutil.rmtree(self.tree / folder))
        for name, text in labels.items():
            (self.tree / folder / f"{name}.h").write_text(self.HEAD.format(name, text))

    def labels_that_the_folder_states(self):
        self.headers("nn/extra", a=" * Folder: Ownership: none. Units: none.\n *         Threads: any.\n * Errors: none.\n", b=" * Units: bytes.\n")
        yield
        self.assertEqual([line for line in self.lines if "nn/extra/" in line], [
            "nn/extra/b.h:1: the opening comment does not state Errors:, and no header states it for the folder"])

    def a_label_that_two_headers_state(self):
        self.headers("data/extra", a=" * Folder: Ownership: none. Units: none.\n *         Threads: any.\n * Errors: none.\n",
                     c=" * Folder: Errors: none. Units: bytes.\n")
        yield
        self.assertEqual([line for line in self.lines if "data/extra/" in line], ["data/extra/c.h:1: a.h states the folder's Units:, too"])


if __name__ == "__main__":
    unittest.main()
