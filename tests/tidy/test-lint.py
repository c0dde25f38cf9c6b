#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The hook of ops/lint --install in a repository of its own: what is staged is looked at, and nothing else."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOOD = """/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"

int number_twice(int x) { return 2 * x; }
"""
HEADER = """/* SPDX-License-Identifier: Apache-2.0 */
/* number.h - numbers.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

int number_twice(int x);
"""


MESSAGE = "everywhere: the tree has a file more\n\nA test needs it.\n"


class Hook(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="sdtrain-test-lint-")
        self.addCleanup(scratch.cleanup)
        self.tree = pathlib.Path(scratch.name) / "tree"
        modules = [f"tests/tidy/{name}.py" for name in ("tidy", "markdown", "english")] + ["ops/mutants_plant.py", "ops/mutants_operators.py"]
        for name in ("ops/lint", ".clang-format", ".editorconfig", *modules):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.tree / name)
        # Nothing of the person's own settings, nor of a hook that runs this test.
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        self.environment |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": scratch.name,
                             "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                             "GIT_COMMITTER_EMAIL": "a@b", "PYTHONDONTWRITEBYTECODE": "1"}
        self.write("base/number.h", HEADER)
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "The tree")
        self.assertEqual(self.run_(["ops/lint", "--install"]).returncode, 0)

    def run_(self, words):
        return subprocess.run(words, cwd=self.tree, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def git(self, *words):
        done = self.run_(["git", *words])
        self.assertEqual(done.returncode, 0, done.stdout)

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self, name, text):
        self.write(name, text)
        self.git("add", name)
        return self.run_(["git", "commit", "-q", "-m", MESSAGE])

    def takes(self, name, text):
        done = self.commit(name, text)
        self.assertEqual(done.returncode, 0, done.stdout)

    def refuses(self, name, text, because):
        done = self.commit(name, text)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn(because, done.stdout)
        self.git("rm", "-q", "--cached", "-f", name)

    def test_good(self):
        self.takes("base/number.c", GOOD)
        self.takes("docs/page.md", "# A page\n\nA line.\n")
        self.takes("data.bin", "\t anything \n")

    @unittest.skipUnless(shutil.which("clang-format"), "no clang-format")
    def test_form(self):
        self.refuses("base/number.c", GOOD.replace("2 * x", "2*x"), "clang-format -i was not run")

    def test_rules(self):
        self.refuses("base/number.c", GOOD + "/* TO" + "DO */\n", "base/number.c:5: something was left open")
        self.refuses("base/bare.h", "#pragma once\n", "base/bare.h:1: must begin with")
        self.refuses("base/number.c", GOOD.replace("base/", "ctl/"), "includes ctl/number.h, which does not exist")

    def test_pages(self):
        self.refuses("docs/page.md", "# A page\n\n```\nls\n```\n", "docs/page.md:3: a fence without a language")
        self.refuses("docs/page.md", "# A page\n\n" + "word " * 60 + "\n", "columns")
        self.refuses("docs/page.md", "# A page\n\n# Another\n", "a page has one title")
        self.refuses("docs/page.md", "# A page\n\nSee http://example.org/ there.\n", "neither a link nor code")
        self.refuses("docs/page.md", "# A page\n\nA line. \n", "blanks at its end")

    @unittest.skipUnless(shutil.which("shellcheck"), "no shellcheck")
    def test_scripts(self):
        self.takes("run", "#!/bin/sh\nls \"$1\"\n")
        self.refuses("other", "#!/bin/sh\nls $1\n", "SC2086")

    def test_the_index_is_looked_at(self):
        self.takes("base/number.c", GOOD)
        self.write("base/number.c", GOOD + "/* later */\n")
        self.git("add", "base/number.c")
        self.write("base/number.c", GOOD + "/* TO" + "DO */\n")  # not staged
        done = self.run_(["git", "commit", "-q", "-m", MESSAGE])
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_messages(self):
        for message, complaint in (
                ("A change", 'the subject is "A change", not "folder: what is true now"'),
                ("basement: it is cold\n\nWhy.", '"basement" is not a folder'),
                ("base, docs: " + "very " * 20 + "long\n\nWhy.", "the subject has 116 characters, at most 100"),
                ("base: a number is twice itself", "there is no body"),
                ("base: a number is twice itself\nWhy.", "the line after the subject is not empty"),
                ("base: a number is twice itself\n\n" + "long " * 21, "a line of 104 characters"),
                ("base: a number " + "is no word\n\nWhy.", '"is no word": say "is not"'),
                ("base: a number is twice itself\n\nWhat is added " + "is\nmore.", 'a sentence that opens with "What"')):
            self.write("base/number.c", GOOD)
            self.git("add", "base/number.c")
            done = self.run_(["git", "commit", "-q", "-m", message])
            self.assertNotEqual(done.returncode, 0, message)
            self.assertIn(f"lint: message: {complaint}", done.stdout)
        self.takes("base/number.c", GOOD)
        self.write("base/number.c", GOOD + "\n")
        self.git("commit", "-q", "-a", "-m", "base, docs: a number is twice itself\n\n# A remark.\nMeasured: 2.\n", "--no-verify")
        self.git("revert", "--no-edit", "HEAD")

    def test_without_clang_format(self):
        """A machine that has neither commits; rules are still looked at."""
        bare = self.tree.parent / "bin"
        bare.mkdir()
        for name in ("git", "sh", "python3", "env"):
            (bare / name).symlink_to(shutil.which(name))
        self.environment["PATH"] = str(bare)
        done = self.commit("base/number.c", GOOD.replace("2 * x", "2*x"))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("there is no clang-format", done.stdout)
        self.refuses("base/other.c", GOOD + "/* TO" + "DO */\n", "something was left open")

    def test_another_hook_stays(self):
        for name in ("pre-commit", "commit-msg"):
            self.install_beside_another(self.tree / ".git/hooks" / name)

    def install_beside_another(self, hook):
        before = hook.read_text()
        hook.write_text("#!/bin/sh\nexit 0\n")
        done = self.run_(["ops/lint", "--install"])
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("somebody else's", done.stdout)
        self.assertEqual(hook.read_text(), "#!/bin/sh\nexit 0\n")
        hook.write_text(before)

    def test_a_tree_without_it(self):
        """An older commit is checked out: the hook has nothing to run."""
        self.git("rm", "-q", "-r", "ops")
        self.git("commit", "-q", "-m", "Older")


class Purity(unittest.TestCase):
    """Libraries of one function each: what purity.sh says of them."""

    def says(self, rule, body):
        with tempfile.TemporaryDirectory(prefix="sdtrain-test-lint-") as folder:
            source, made, library = (pathlib.Path(folder) / name for name in ("a.c", "a.o", "liba.a"))
            source.write_text(body)
            subprocess.run(["cc", "-c", "-O1", "-w", "-o", made, source], check=True)
            subprocess.run(["ar", "rc", library, made], check=True)
            words = [library] if rule == "pure" else ["--", library]
            done = subprocess.run([ROOT / "tests/tidy/purity.sh", *words], text=True, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode == 0, not done.stderr, done.stderr)
            return done.stderr

    def calls(self, rule, name):
        return self.says(rule, f"int {name}(void); int a(void) {{ return {name}() + 1; }}")

    def test_a_pure_library_calls_nothing(self):
        self.assertEqual(self.calls("pure", "memcmp"), "")
        for name in ("clock_boottime_usec", "etcd_txn", "snprintf", "log_write"):
            self.assertIn(f"not pure: calls {name}", self.calls("pure", name))

    def test_a_library_without_a_process_is_handed_what_is_the_process_own(self):
        for name in ("clock_boottime_usec", "etcd_txn", "sd_event_add_time", "snprintf", "log_write", "memcmp"):
            self.assertEqual(self.calls("apart", name), "")
        for name in ("sd_notify", "sd_notifyf", "sd_event_exit", "sd_event_add_signal", "sd_event_default", "http_post",
                     "exporter_new", "getrandom", "arc4random", "getenv", "open", "file_read", "kill", "time", "etcd_new",
                     "settings_load", "exit", "fork"):
            self.assertIn(f"tied to a process: calls {name}", self.calls("apart", name))

    def test_neither_has_variables(self):
        for rule in ("pure", "apart"):
            self.assertIn("has variables", self.says(rule, "static int n; int a(void) { return ++n; }"))
            self.assertEqual(self.says(rule, "static const int n[] = {1, 2}; int a(int i) { return n[i]; }"), "")


if __name__ == "__main__":
    sys.exit(unittest.main())
