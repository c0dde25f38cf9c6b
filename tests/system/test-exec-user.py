#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of jobs as another user than sdtraind: below hosts, as systemd's units start them. Needs root and cgroups of
version 2; says "skipped: ..." without."""
import json
import os
import signal
import sys
import threading
import unittest

import units
from lab import BIN, Lab, process_state, until

# It writes what it is and what it can reach, steps until it may end, and leaves a process behind that has a session of its own.
PROGRAM = """#!/bin/sh
beats=beats-$SDTRAIN_GENERATION-$RANK
id -u >user-$RANK
pwd >>places-$RANK
echo "$TMPDIR
$SDTRAIN_SOCKET" >>places-$RANK
for path in $PRIVATE; do cat "$path" >/dev/null 2>&1 && echo "$path"; ls "$path/" 2>/dev/null; done >reached-$RANK
for pid in $DAEMONS; do kill -0 $pid 2>/dev/null && echo $pid; done >>reached-$RANK
setsid sleep 1000 &
echo $! >left-$SDTRAIN_GENERATION-$RANK
n=0
while [ ! -e ends ]; do
    n=$((n + 1))
    date +%s%N >>$beats
    "$PROGRAMS/sdtrain-exec" say STEP=$n
    sleep 0.05
done
"""


class ExecUser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.addClassCleanup(cls.lab.close)
        cls.units = {name: units.Units(cls.lab, name) for name in ("node1", "node2")}
        for of in cls.units.values():
            cls.addClassCleanup(of.close)
        cls.cluster = cls.lab.cluster(nodes=2, trainers=["TESTLAB=" + cls.lab.folder], up=["--allow-exec"])
        cls.addClassCleanup(cls.cluster.down)
        os.chmod(cls.cluster.folder, 0o700)
        for node, of in cls.units.items():
            cls.cluster.configure(node, exec_user=units.USER, exec_socket=of.socket, exec_slice=of.slice)
        cls.user = of.user
        cls.names = 0

    def setUp(self):
        type(self).names += 1
        self.name = "p%d" % self.names
        self.folder = self.lab.path("programs", self.name)
        os.makedirs(self.folder)
        os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        with open(self.path("program"), "w") as file:
            file.write(PROGRAM)
        os.chmod(self.path("program"), 0o755)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def there(self, name):
        until(lambda: os.path.exists(self.path(name)) and self.read(name), "%s of %s\n%s" % (name, self.name, self.cluster.story()),
              timeout=60)

    def start(self, n=2):
        folder = self.cluster.folder
        job = {"name": self.name, "kind": "exec", "world": {"min": n, "max": n},
               "exec": {"command": ["./program"], "dir": self.folder,
                        "env": {"PRIVATE": "%s %s/node1/config.json %s/node1/run /etc/shadow" % (folder, folder, folder),
                                "PROGRAMS": os.path.dirname(self.units["node1"].program),
                                "DAEMONS": " ".join(str(self.cluster.pid(node)) for node in self.units)}},
               "recovery": {"max_failures_at_same_step": 3, "grow_interval_s": 0}}
        self.cluster.submit(job)
        self.addCleanup(lambda: self.cluster.ctl_code("job", "delete", self.name))
        for rank in range(n):
            self.there("beats-1-%d" % rank)
        return job

    def end(self, job):
        with open(self.path("ends"), "w"):
            pass
        self.cluster.wait(job, "succeeded", timeout=60)
        until(lambda: not any(of.alive() for of in self.units.values()), "the end of all units")
        return self.cluster.status(job)

    def beats(self, generation, rank):
        return [int(line) for line in self.read("beats-%d-%d" % (generation, rank)).split()]

    def gone(self, generation, rank):
        pid = int(self.read("left-%d-%d" % (generation, rank)))
        until(lambda: process_state(pid) in (None, "Z"), "the end of what rank %d has left" % rank)

    def doctor(self):
        """What sdctl doctor says of programs: {node: (state, what was found)}."""
        _, text = self.cluster.ctl_code("doctor", "-o", "json")
        return {node: (one["state"], one["found"]) for one in json.loads(text)["findings"] if one["check"] == "programs"
                for node in one["where"]}

    def test_another_user(self):
        found = "run as %s (%d), in units" % (units.USER, self.user.pw_uid)
        self.assertEqual(self.doctor(), {"node1": ("ok", found), "node2": ("ok", found)})
        job = self.start()
        for rank in self.cluster.status(job)["world"]["ranks"]:
            self.assertEqual(os.stat("/proc/%d" % rank["pid"]).st_uid, self.user.pw_uid, rank)
        status = self.end(job)
        self.assertEqual((status["generation"], status["incidents"]), (1, []))
        for rank in range(2):
            self.assertEqual(int(self.read("user-%d" % rank)), self.user.pw_uid)
            self.assertEqual(self.read("reached-%d" % rank), "", "neither keys nor folders, and no daemon to signal")
            cwd, *ours = self.read("places-%d" % rank).split("\n")[:3]
            self.assertEqual(cwd, self.folder)
            for place in ours:
                self.assertTrue(any(place.startswith(of.state + "/") for of in self.units.values()), place)
            self.gone(1, rank)

    def test_a_host_that_is_killed(self):
        """Its unit goes with all that it has started, and another world goes on."""
        job = self.start()
        (unit,) = self.units["node2"].alive()
        unit.host.kill()
        for rank in range(2):
            self.there("beats-2-%d" % rank)
            self.gone(1, rank)
            self.assertLess(self.beats(1, rank)[-1], self.beats(2, 0)[0])
        status = self.end(job)
        self.assertEqual(status["generation"], 2)
        self.assertEqual([incident["cause"] for incident in status["incidents"]], ["trainer-died"])

    def test_a_program_that_is_killed(self):
        job = self.start()
        os.kill(self.cluster.status(job)["world"]["ranks"][1]["pid"], signal.SIGKILL)
        for rank in range(2):
            self.there("beats-2-%d" % rank)
            self.gone(1, rank)
        self.assertEqual(self.end(job)["generation"], 2)

    def test_a_daemon_that_dies(self):
        """Its host stands still, and so its program lives on: the next life of the daemon waits for the unit's end."""
        job = self.start(1)
        (rank,) = self.cluster.status(job)["world"]["ranks"]
        (unit,) = self.units[rank["node"]].alive()
        for node in self.units:  # it can't go on elsewhere
            if node != rank["node"]:
                self.cluster.ctl("node", "cordon", node)
        os.kill(unit.host.pid, signal.SIGSTOP)
        self.cluster.kill(rank["node"])
        again = threading.Thread(target=self.cluster.start, args=(rank["node"],))
        again.start()
        until(lambda: "waiting for the end of programs that an earlier sdtraind has started" in self.cluster.story(400), "a wait")
        self.assertTrue(unit.populated())
        unit.host.kill()  # as its watchdog does
        again.join()
        self.there("beats-2-0")
        self.gone(1, 0)
        self.assertLess(self.beats(1, 0)[-1], self.beats(2, 0)[0])
        self.end(job)
        for node in self.units:
            self.cluster.ctl("node", "uncordon", node)

    def test_no_socket(self):
        """The reason says where the units are looked for."""
        job = self.start()
        self.units["node2"].stop()
        (rank,) = [rank for rank in self.cluster.status(job)["world"]["ranks"] if rank["node"] == "node2"]
        os.kill(rank["pid"], signal.SIGKILL)
        self.cluster.wait(job, "failed", timeout=60)
        self.assertIn(self.units["node2"].socket, json.dumps(self.cluster.status(job)))
        state, found = self.doctor()["node2"]
        self.assertEqual((state, self.units["node2"].socket in found), ("wrong", True), found)
        self.units["node2"].listen()


if __name__ == "__main__":
    reason = units.skipped()
    if reason:
        print("skipped: " + reason)
        sys.exit(0)
    unittest.main(verbosity=2)
