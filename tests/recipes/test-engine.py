#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the container tests start goes with them, however they end; and what a lost keeper leaves, the next run removes.

Root and podman; ops/test --packages."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from engine import SOURCE, why_not

sys.path.insert(0, os.path.join(SOURCE, "tests/system"))
from lab import process_state, until  # noqa: E402

# A test whose container never ends; folders of its own, since other tests' are waited for.
RUN = """
import sys
import engine
engine.PREFIX = sys.argv[1]
made = engine.Engine.make()
print(made.folder, made.keeper, made.first, flush=True)
made.run("sleep", "infinity")
"""


class Keeper(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp(prefix="sdtrain-engines-")
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)

    def begin(self):
        """(the test, its engine's folder, the keeper, the first process of the namespaces, what was printed before)"""
        process = subprocess.Popen([sys.executable, "-B", "-c", RUN, self.place + "/engine-"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=os.path.dirname(__file__))
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        said = ""
        for line in process.stdout:
            if line.startswith(self.place):
                folder, keeper, first = line.split()
                until(lambda: process_state(int(first)), "the engine's namespaces")
                return process, folder, int(keeper), int(first), said
            said += line
        self.fail("no engine: " + said)

    def test_it_clears_up_however_the_test_ends(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            process, folder, _, first, _ = self.begin()
            process.send_signal(number)
            until(lambda: not os.path.exists(folder), "the folder is gone after %s" % number.name)
            until(lambda: process_state(first) in (None, "Z"), "all has ended after %s" % number.name)

    def test_what_a_lost_keeper_leaves_the_next_run_removes(self):
        process, folder, keeper, first, said = self.begin()
        self.assertEqual(said, "")
        os.kill(keeper, signal.SIGKILL)
        process.kill()
        until(lambda: process_state(first) in (None, "Z"), "the namespaces end with their keeper")
        self.assertTrue(os.path.exists(folder))
        process, other, _, _, said = self.begin()
        self.assertEqual(said, "removing what an earlier run left in %s\n" % folder)
        self.assertFalse(os.path.exists(folder))
        process.kill()
        until(lambda: not os.path.exists(other), "nothing is left")


if __name__ == "__main__":
    if why_not():
        print("skipped: " + why_not())
        sys.exit(0)
    unittest.main(verbosity=2)
