#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ops/mutants on a tree of two sources: bugs that are caught, survive, hang, eat memory, and such as cannot be planted."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("SDTRAIN_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / "ops"))
sys.dont_write_bytecode = True
import mutants_operators  # noqa: E402

COUNT = """#include "count.h"

int count_to(int n)
{
    int sum = 0;
    for (int i = 1; i <= n; i++)
        sum += i;
    if (sum > 1000)
        sum = 1000;
    return sum;
}
"""
TEST = """#include "count.h"
#include <unistd.h>
#include <sys/wait.h>

int main(void)
{
    if (fork() == 0) { /* outlives the test, if nobody ends it */
        setsid();
        execlp("sleep", "sleep", "4711", (char *)0);
    }
#ifdef STRICT
    if (count_to(100) != 1000)
        return 1;
#endif
    return count_to(4) == 10 ? 0 : 1;
}
"""
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(two C)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(count STATIC part/count.c)
add_executable(test-count part/test-count.c)
target_link_libraries(test-count PRIVATE count)
"""


def bug(old, new, where="function: count_to", extra=""):
    return f"why: It is wrong.\n{where}\ntest: test-count\n{extra}<<<\n{old}\n===\n{new}\n>>>\n"


class Tool(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="mutants-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.tree = pathlib.Path(cls.folder.name)
        (cls.tree / "part").mkdir()
        (cls.tree / "part/count.c").write_text(COUNT)
        (cls.tree / "part/count.h").write_text("#pragma once\nint count_to(int n);\n")
        (cls.tree / "part/test-count.c").write_text(TEST)
        (cls.tree / "CMakeLists.txt").write_text(CMAKE)
        (cls.tree / "tests/mutants").mkdir(parents=True)
        (cls.tree / "tests/mutants/tests.txt").write_text("part: test-count\n")
        subprocess.run(["cmake", "-G", "Ninja", "-S", cls.tree, "-B", cls.tree / "build"], stdout=subprocess.DEVNULL, check=True)

    def mutants(self, *words, **bugs):
        """(status, output, {name: result}) of the tool with these planted bugs."""
        (self.tree / "tests/mutants/part.bugs").write_text("\n".join(f"bug: {name}\n{text}" for name, text in bugs.items()))
        results = self.tree / "build/mutants/results.json"
        results.unlink(missing_ok=True)
        done = subprocess.run([sys.executable, ROOT / "ops/mutants", "--source", self.tree, "--build", self.tree / "build", *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found = json.loads(results.read_text()) if results.exists() else []
        return done.returncode, done.stdout, {result["name"]: result for result in found}

    def test_caught(self):
        old, new = ("    for (int i = 1; i %s n; i++)" % compare for compare in ("<=", "<"))
        status, _, results = self.mutants("--all", short=bug(old, new))
        self.assertEqual((status, results["short"]["state"], results["short"]["by"]), (0, "caught", "test-count"))
        self.assertEqual((self.tree / "part/count.c").read_text(), COUNT)

    def test_nothing_is_left_running(self):
        self.mutants("--all", fine=bug("        sum = 1000;", "        sum = 999;"))
        out = subprocess.run(["ps", "-eo", "args"], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertNotIn("sleep 4711\n", out)

    def test_the_machine_keeps_its_null_device(self):
        mode = os.stat("/dev/null").st_mode
        self.addCleanup(os.chmod, "/dev/null", mode & 0o777)
        _, out, _ = self.mutants("--all", closes=bug("        sum += i;", "        sum += i;\n    extern int chmod(const char *, unsigned);\n"
                                         "    (void)chmod(\"/dev/null\", 0600);"))
        if "without a " in out:
            self.skipTest(out)
        self.assertEqual(os.stat("/dev/null").st_mode, mode)

    def test_survives(self):
        status, out, results = self.mutants("--all", lives=bug("        sum = 1000;", "        sum = 999;"))
        self.assertEqual((status, results["lives"]["state"]), (1, "survives"))
        self.assertIn("survives: part/lives (part/count.c): test-count", out)

    def test_open(self):
        status, out, results = self.mutants("--all", lives=bug("        sum = 1000;", "        sum = 999;", extra="open: no test counts so far\n"))
        self.assertEqual((status, results["lives"]["state"]), (0, "survives"))
        self.assertIn("0 caught, 1 open", out)

    def test_within(self):
        status, out, results = self.mutants("--all", "--within", "0", lives=bug("        sum = 1000;", "        sum = 999;"))
        self.assertEqual((status, results), (0, {}))
        self.assertIn("left out: 1", out)

    def test_hangs(self):
        status, _, results = self.mutants("--all", "--limit", "2", hangs=bug("        sum += i;", "        i--;"))
        self.assertEqual((status, results["hangs"]["state"], results["hangs"]["by"]), (0, "caught", "test-count: timed out"))

    def test_eats_memory(self):
        new = "        for (char *p = __builtin_malloc(8ul << 30);; p += 4096)\n            *p = 1;"
        status, _, results = self.mutants("--all", "--limit", "300", eats=bug("        sum += i;", new))
        self.assertEqual((status, results["eats"]["by"]), (0, "test-count: too much memory"))

    def test_does_not_compile(self):
        status, _, results = self.mutants("--all", broken=bug("        sum += i;", "        sum += j;"))
        self.assertEqual((status, results["broken"]["state"]), (1, "error"))
        self.assertIn("does not compile", results["broken"]["text"])

    def test_does_not_fit(self):
        for text, says in ((bug("        sum -= i;", ""), "part/odd: 0 functions count_to() have its old text once (in part/count.c)"),
                           (bug("    int", ""), "part/odd: 0 functions count_to() have its old text once"),
                           (bug("        sum += i;", "", "function: count_from"), "part/odd: 0 functions count_from() have its old text once (in no file)"),
                           (bug("        sum += i;", "", "file: part/other.c"), "part/odd: there is no part/other.c"),
                           (bug("        sum -= i;", "", "file: part/count.c"), "part/odd: its old text stands 0 times in part/count.c"),
                           (bug("        sum += i;", "", "file: part/count.h"), "is not a C source"),
                           (bug("        sum += i;", "", "function: count_to\nfile: part/count.c"), "one field 'function', or 'file' for what is in no function"),
                           (bug("        sum += i;", "", extra="color: red\n"), "no field of a planted bug: 'color: red'"),
                           (bug("        sum += i;", "") + "bug: odd\n" + bug("        sum += i;", ""), "part/odd: there are two of that name"),
                           (bug("        sum += i;", "") + "stray\n", "part.bugs:10: no planted bug: 'bug: NAME'"),
                           ("why: It is wrong.\nfunction: count_to\n<<<\n        sum += i;\n===\n>>>\n", "one field 'test' is needed")):
            status, out, _ = self.mutants("--all", odd=text)
            self.assertEqual(status, 1, out)
            self.assertIn(says, out)

    def test_a_function_is_followed(self):
        """It may move to another file; another of its name elsewhere, without the text, is not meant."""
        other = self.tree / "part/other.c"
        self.addCleanup(lambda: (other.unlink(), (self.tree / "part/count.c").write_text(COUNT)))
        other.write_text("static int count_to(int n)\n{\n    return n;\n}\n")
        _, out, _ = self.mutants("--list", here=bug("        sum += i;", ""))
        self.assertIn("part/here", out)
        (self.tree / "part/count.c").write_text("int x;\n")
        other.write_text(COUNT)
        _, out, _ = self.mutants("--list", here=bug("        sum += i;", ""))
        self.assertIn("part/here", out)

    def test_a_test_that_fails_without_a_bug(self):
        status, out, _ = self.mutants("--all", other=bug("        sum += i;", "", extra="test: test-count\n").replace("test: test-count\ntest", "test: false\ntest"))
        self.assertEqual(status, 1)
        self.assertTrue("false" in out, out)

    def test_tenths(self):
        names = {f"bug{i:02}": bug("        sum += i;", "        sum -= i;") for i in range(12)}
        seen = []
        for nth in range(10):
            _, out, _ = self.mutants("--list", "--tenth", str(nth), **names)
            seen += [line.split()[0] for line in out.splitlines() if line.startswith("part/")]
        self.assertEqual(sorted(seen), [f"part/{name}" for name in sorted(names)])

    def test_operators(self):
        status, out, _ = self.mutants("--operators", "part/count.c", "--limit", "2")
        self.assertEqual(status, 0, out)
        listed = json.loads((self.tree / "build/mutants/operators.json").read_text())
        survives = {(entry["line"], entry["now"]) for entry in listed if entry["state"] == "survives"}
        self.assertEqual(survives, {(8, "if (sum >= 1000)"), (9, ";")})
        self.assertIn((6, "for (int i = 1; i < n; i++)"), {(entry["line"], entry["now"]) for entry in listed if entry["state"] == "caught"})
        mark = "file part/count.c\nwas  if (sum > 1000) /* a comment of before */\nnow  if (sum >= 1000)\nwhy  1000 becomes 1000\n"
        (self.tree / "tests/mutants/equal.txt").write_text(mark)
        _, out, _ = self.mutants("--operators", "part/count.c", "--limit", "2", "--sample", "2")
        self.assertIn("2 changes by operators (seed 1), 1 marked as equal", out)

    def test_survivors_are_tried_in_a_build_that_sees_more(self):
        strict = self.tree / "strict"
        subprocess.run(["cmake", "-G", "Ninja", "-DCMAKE_C_FLAGS=-DSTRICT", "-S", self.tree, "-B", strict], stdout=subprocess.DEVNULL, check=True)
        (self.tree / "tests/mutants/equal.txt").unlink(missing_ok=True)
        _, out, _ = self.mutants("--operators", "part/count.c", "--limit", "2", "--sanitized", strict)
        self.assertIn("sanitized: 1 of 2 survivors caught", out)
        listed = json.loads((self.tree / "build/mutants/operators.json").read_text())
        self.assertEqual([entry["now"] for entry in listed if entry["state"] == "survives"], ["if (sum >= 1000)"])

    def test_an_order_that_changes_nothing(self):
        code = "int f(void)\n{\n    g(calloc(n, 8));\n    h = strcmp(a, b) == 0;\n    return strcmp(c, d);\n}\n"
        swapped = [new for _, _, new, operator in mutants_operators.places(code) if operator == "arguments swapped"]
        self.assertEqual(swapped, ["d, c"])


if __name__ == "__main__":
    unittest.main()
