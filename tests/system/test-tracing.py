#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The static probes are in the programs, with the arguments that docs/internals/tracing.md lists, and gdb stops at them;
ops/gdb/sdtrain.py reads live programs: a core in its test, a daemon and a controller of a cluster that trains."""
import os
import re
import shutil
import signal
import subprocess
import unittest

from lab import BIN, SOURCE, LabCase

SCRIPT = os.path.join(SOURCE, "ops/gdb/sdtrain.py")


def program(name):
    return os.path.join(BIN, name)


def notes(name):
    """{probe: number of arguments} of a program's ELF notes of provider sdtrain."""
    out = subprocess.run(["readelf", "-n", program(name)], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.findall(r"Provider: sdtrain\n *Name: (\w+)\n *Location:.*\n *Arguments: (.*)\n", out)
    return {probe: len(arguments.split()) for probe, arguments in found}


def documented():
    """{program: {probe: number of arguments}} of the page's table."""
    with open(os.path.join(SOURCE, "docs/internals/tracing.md")) as file:
        rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \| [^|]* \|$", file.read(), re.M)
    found = {}
    for probe, programs, arguments in rows:
        for name in re.findall(r"`(\w+)`", programs):
            found.setdefault(name, {})[probe] = len(arguments.split(","))
    return found


def gdb(*commands, arguments=(), timeout=240):
    """What gdb prints for these commands."""
    words = ["gdb", "-nx", "-batch", "-ex", "set confirm off", "-ex", "set debuginfod enabled off", "-x", SCRIPT]
    for command in commands:
        words += ["-ex", command]
    done = subprocess.run(words + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=SOURCE,
                          errors="replace", timeout=timeout, stdin=subprocess.DEVNULL)
    return done.stdout


class Probes(LabCase):
    def test_notes(self):
        """The page says what there is, and nothing else is there."""
        table = documented()
        self.assertEqual(sorted(table), ["sdcontroller", "sdctl", "sdprep", "sdtraind", "sdtrainer"])
        for name, probes in table.items():
            self.assertEqual(notes(name), probes, name)
        eight = {"step", "save", "decision", "retry", "world", "kill", "get", "put"}
        self.assertEqual({probe for probes in table.values() for probe in probes}, eight)

    @unittest.skipUnless(shutil.which("gdb"), "no gdb")
    def test_values(self):
        """A rank alone: the steps and saves that gdb meets are those of the job."""
        job = self.lab.job("alone", train__steps=4, checkpoint__every_steps=2)
        script = self.lab.write("probes.gdb", """
set pagination off
set breakpoint pending on
break -probe-stap sdtrain:step
commands
silent
printf "step %d of rank %d after %d us\\n", $_probe_arg0, $_probe_arg1, $_probe_arg2
continue
end
break -probe-stap sdtrain:save
commands
silent
printf "save %d result %d bytes %d\\n", $_probe_arg0, $_probe_arg1, $_probe_arg4
continue
end
run
""")
        text = gdb("source %s" % script, arguments=["--args", program("sdtrainer"), "run", "--job", self.lab.job_file(job)])
        self.assertIn("exited normally", text)
        self.assertEqual(re.findall(r"^step (\d+) of rank 0 after [1-9]\d* us$", text, re.M), ["1", "2", "3", "4"], text)
        saves = re.findall(r"^save (\d+) result 0 bytes [1-9]\d*$", text, re.M)
        self.assertIn("4", saves, text)
        self.assertTrue(set(saves) <= {"0", "2", "4"}, text)


@unittest.skipUnless(shutil.which("gdb"), "no gdb")
class Debugger(LabCase):
    def test_core(self):
        """Anywhere in a story of the core."""
        text = gdb("break decide_failure", "run", "sdtrain-cluster", "sdtrain-cluster c", "sdtrain-world job->world",
                   arguments=[program("test-cluster")])
        self.assertEqual(len(re.findall(r"^term \d+, revision \d+, now \d+ us", text, re.M)), 2, text)
        self.assertRegex(text, r"(?m)^node n1: present, \d+ slots, lost slots none, changed at \d+ us$")
        self.assertRegex(text, r"(?m)^job \w+: \w+, generation \d+, failing ")
        self.assertRegex(text, r"(?m)^  ranks from 0: node n\d, slots 0")
        self.assertRegex(text, r"(?m)^world of generation \d+: \d+ ranks$")
        self.assertIn("no frame has a Workload", gdb("break decide_failure", "run", "sdtrain-local-worlds",
                                                   arguments=[program("test-cluster")]))

    @unittest.skipIf(os.geteuid() != 0, "attaching needs root")
    def test_cluster(self):
        """A daemon and a controller are stopped for a moment, and training goes on."""
        cluster = self.lab.cluster(2, patient=("node1",))
        self.addCleanup(cluster.down)
        job = self.lab.job("traced", train__steps=60, world__min=2)
        reference = self.lab.reference(dict(job, name="reference", checkpoint={"uri": self.lab.path("reference"), "every_steps": 5}))
        cluster.fault("node1", "loop.compute=stop@20")  # nothing moves while gdb looks
        cluster.submit(job)
        stopped = self.lab.stopped()
        rank = cluster.rank_on(job, "node1")
        self.assertEqual(rank["pid"], stopped)
        text = gdb("sdtrain-local-worlds", "detach", arguments=["-p", str(cluster.pid("node1"))])
        self.assertRegex(text, r"(?m)^slot 0: rank %d of traced, generation 1, pid %d$" % (rank["rank"], rank["pid"]), text)
        self.assertRegex(text, r"(?m)^job traced: running$")
        self.assertRegex(text, r"(?m)^  world of generation 1: 2 ranks, 1 here$")
        self.assertRegex(text, r"(?m)^    rank %d: slot 0, \w+, step \d+, pid %d$" % (rank["rank"], rank["pid"]))
        text = gdb("sdtrain-cluster", "detach", arguments=["-p", str(cluster.pid("controller1"))])
        self.assertRegex(text, r"(?m)^node node1: present, 1 slots, ")
        self.assertRegex(text, r"(?m)^job traced: running, generation 1, failing not")
        os.kill(stopped, signal.SIGCONT)
        self.check_same(cluster.finish(job), reference, "after gdb")


if __name__ == "__main__":
    unittest.main()
