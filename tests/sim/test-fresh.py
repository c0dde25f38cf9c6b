#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fresh seeds are told and can be run again, what breaks is kept, and a long run goes on where it was killed."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["SDTRAIN_SOURCE"]
SIM = os.path.join(os.environ["SDTRAIN_BIN"], "sim")
BREAKS = {"SDTRAIN_SIM_WITHIN_SEC": "1"}  # no job may take longer to train again: most schedules are broken, and end in the middle
# Where there is a file `die`, its caller is killed; each seed that ends in 7 may be broken.
FAKE = """#!/usr/bin/env python3
import os, sys
a = dict(zip(sys.argv[1::2], sys.argv[2::2]))
first, last = map(int, a["--seeds"].split(".."))
with open("%(folder)s/ran", "a") as file:
    file.write("%%d %%d\\n" %% (first, last))
if os.path.exists("%(folder)s/die"):
    os.remove("%(folder)s/die")
    os.kill(os.getppid(), 9)
    sys.exit(1)
broken = [seed for seed in range(first, last + 1) if %(breaks)s and seed %% 10 == 7]
with open(a["--broken"], "a") as file:
    file.writelines("%%d 8  I2: it\\n" %% seed for seed in broken)
print("sim: %%d schedules, twice each, %%d broken, in 1.0 s" %% (last - first + 1, len(broken)))
sys.exit(1 if broken else 0)
"""


def run(*command, **environment):
    done = subprocess.run(command, env=dict(os.environ, **environment), check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300)
    return done.returncode, done.stdout


def history(text):
    """What each schedule in it came to, and the digest of its history."""
    return re.findall(r"^seed \d+ of .*$", text, re.M)


class Program(unittest.TestCase):
    def test_seeds_are_fresh_and_can_be_run_again(self):
        ranges = []
        for _ in range(2):
            code, text = run(SIM, "--fresh", "2")
            self.assertEqual(code, 0, text)
            ranges.append(re.search(r"^sim: again with SDTRAIN_SIM_SEEDS=(\d+)\.\.(\d+)$", text, re.M).groups())
        self.assertLess(int(ranges[0][1]), int(ranges[1][0]), "no seed twice")
        code, again = run(SIM, "--fresh", "9999", SDTRAIN_SIM_SEEDS="..".join(ranges[1]))
        self.assertEqual(code, 0, again)
        events = [re.search(r"(\d+) schedules.* (\d+) events", told).groups() for told in (text, again)]
        self.assertEqual(events[0], events[1])
        for bad in ("0", "x", "1x", "9999999"):
            self.assertEqual(run(SIM, "--fresh", bad)[0], 2, bad)
        self.assertEqual(run(SIM, "--fresh", "2", SDTRAIN_SIM_SEEDS="5..")[0], 2)

    def test_a_history_does_not_depend_on_its_place(self):
        """What a schedule leaves behind in its worker, what lies in memory and where, changes none that comes later."""
        for environment in ({}, BREAKS):
            alone = {}
            for seed, fill in ((1, "0"), (2, "85"), (3, "170")):
                alone[seed] = history(run(SIM, "--seed", str(seed), MALLOC_PERTURB_=fill, **environment)[1])
            for order in ((1, 2, 3), (3, 1, 2), (2, 2, 1)):
                with tempfile.NamedTemporaryFile("w") as file:
                    file.writelines("%d 8\n" % seed for seed in order)
                    file.flush()
                    text = run("taskset", "-c", str(min(os.sched_getaffinity(0))), SIM, "--file", file.name, "--verbose", **environment)[1]
                self.assertEqual(history(text), [line for seed in order for line in alone[seed]])

    def test_what_breaks_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "broken")
            code, text = run(SIM, "--seeds", "1..20", "--first", "--broken", path, **BREAKS)
            self.assertEqual(code, 1, text)
            seed = re.search(r"^BROKEN \S+ by seed (\d+) of 8 nodes", text, re.M).group(1)
            self.assertIn("to keep it: grep '^%s ' %s >>tests/sim/seeds" % (seed, path), text)
            with open(path, encoding="utf-8") as file:
                self.assertRegex(file.readline(), r"^%s 8  \S+: ." % seed)
            self.assertEqual(run(SIM, "--file", path, **BREAKS)[0], 1, "it is a file of seeds")


class Long(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.record = os.path.join(self.folder, "record.md")

    def long(self, count, breaks=False):
        program = os.path.join(self.folder, "sim")
        with open(program, "w", encoding="utf-8") as file:
            file.write(FAKE % {"folder": self.folder, "breaks": breaks})
        os.chmod(program, 0o755)
        return run(sys.executable, os.path.join(SOURCE, "tests/sim/fresh.py"), str(count), "--sim", program, "--folder",
                   os.path.join(self.folder, "state"), "--record", self.record, "--batch", "10")

    def ran(self):
        with open(os.path.join(self.folder, "ran"), encoding="utf-8") as file:
            return [tuple(map(int, line.split())) for line in file]

    def state(self):
        return os.path.join(self.folder, "state", "state.json")

    def rows(self):
        with open(self.record, encoding="utf-8") as file:
            return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in file]

    def test_batches_follow_each_other(self):
        code, text = self.long(25)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"fresh: 10 of 25, 0 broken, \d+ a second, ends about \d{4}-")
        ran = self.ran()
        self.assertEqual([last - first + 1 for first, last in ran], [10, 10, 5])
        self.assertEqual([first for first, _ in ran[1:]], [last + 1 for _, last in ran[:-1]])
        self.assertEqual(self.rows()[0][2:6], ["%d..%d" % (ran[0][0], ran[-1][1]), "8", "25", "0"])
        self.assertFalse(os.path.exists(self.state()), "it is done")

    def test_killed_in_its_second_batch(self):
        self.assertEqual(self.long(10)[0], 0)  # makes the folder
        first = {"commit": None, "first": 1000, "schedules": 30, "nodes": 8, "done": 10, "broken": 2, "seconds": 1.0}
        code, commit = run("git", "-C", SOURCE, "rev-parse", "--short=12", "HEAD")
        dirty = run("git", "-C", SOURCE, "status", "--porcelain", "--untracked-files=no")[1].strip()
        first["commit"] = (commit.strip() if code == 0 else "unknown") + ("+" if code == 0 and dirty else "")
        if code != 0:
            self.skipTest("there is no history of commits")
        with open(self.state(), "w", encoding="utf-8") as file:
            json.dump(first, file)
        with open(os.path.join(self.folder, "die"), "w", encoding="utf-8"):
            pass
        self.assertEqual(self.long(30)[0], -9)
        code, text = self.long(30)
        self.assertEqual(code, 1, text)
        self.assertEqual(self.ran()[1:], [(1010, 1019), (1010, 1019), (1020, 1029)], "the batch of its death is run again")
        self.assertEqual(self.rows()[-1][2:6], ["1000..1029", "8", "30", "2"])

    def test_another_commit_begins_anew(self):
        self.assertEqual(self.long(10)[0], 0)
        with open(self.state(), "w", encoding="utf-8") as file:
            json.dump({"commit": "another", "first": 1000, "schedules": 20, "nodes": 8, "done": 10, "broken": 0, "seconds": 1.0}, file)
        code, text = self.long(20)
        self.assertEqual(code, 0, text)
        self.assertIn("this one begins anew", text)
        self.assertEqual(self.rows()[-1][4:6], ["20", "0"])
        self.assertGreater(self.ran()[-1][0], 10000)

    def test_broken_ones_are_counted_and_kept(self):
        code, text = self.long(20, breaks=True)
        self.assertEqual(code, 1, text)
        self.assertEqual(self.rows()[-1][4:6], ["20", "2"])
        with open(os.path.join(self.folder, "state", "broken"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 2)


unittest.main(verbosity=2)
