#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nothing outlives its owner: processes, cgroups, sockets and temporary files after a job's end, a node's death and
the end of the cluster."""
import os
import signal
import subprocess
import unittest

from lab import LabCase, process_state, processes_of, until

FREEZER = "/sys/fs/cgroup/freezer"


def cgroup_of(pid):
    """The folder of a trainer's slot; None where cgroups of version 2 are not ours to make."""
    with open("/proc/mounts") as file:
        mounts = [line.split()[1] for line in file if line.split()[2] == "cgroup2"]
    with open("/proc/%d/cgroup" % pid) as file:
        path = next(line[3:].strip() for line in file if line.startswith("0::"))
    if not mounts or "/sdtrain-" not in path:
        return None
    assert os.path.isdir(mounts[0] + path)
    return mounts[0] + path


def listening(port):
    """Is somebody there?"""
    wanted = ":%04X" % port
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[1].endswith(wanted) and fields[3] == "0A":
                    return True
    return False


def is_trainer(pid):
    return process_state(pid) not in (None, "Z")


class Orphans(LabCase):
    def setUp(self):
        self.lab.forget_faults()
        self.cluster = self.lab.cluster(nodes=3)
        self.addCleanup(self.cluster.down)

    def temporaries(self, job):
        """But for those of the jobs of other tests, which were killed while they saved."""
        others = os.path.join(self.lab.folder, "checkpoints", "")
        own = os.path.join(others, job, "")
        return [os.path.join(where, name) for where, _, names in os.walk(self.lab.folder)
                for name in names if "/etcd/" not in where and name.startswith((".put-", ".tmp"))
                and ((where + "/").startswith(own) or not where.startswith(others))]

    def slots(self):
        """The cgroups of the trainers that run, once all of them do."""
        pids = until(lambda: len(self.cluster.trainers()) == 3 and self.cluster.trainers(), "three trainers")
        return [path for path in map(cgroup_of, pids) if path]

    def check_gone(self, slots, bases=False):
        paths = {os.path.dirname(path) if bases else path for path in slots}
        until(lambda: not any(map(os.path.exists, paths)), "the end of the cgroups %s" % paths, timeout=60)

    def test_after_a_job(self):
        self.cluster.fault("node2", "loop.compute=stop@3")
        job = self.lab.job("ends", train__steps=6)
        self.cluster.submit(job)
        pid, slots = self.lab.stopped(), self.slots()
        os.kill(pid, signal.SIGCONT)
        self.cluster.wait(job, "succeeded")
        until(lambda: not self.cluster.trainers(), "the end of the trainers of a job that is done")
        self.check_gone(slots)
        self.assertEqual(self.temporaries("ends"), [])

    def test_after_a_node(self):
        """SIGKILL to a daemon ends its trainer too, at once and without anybody's help."""
        self.cluster.fault("node3", "loop.compute=stop@15")
        job = self.lab.job("node")
        self.cluster.submit(job)
        self.lab.stopped()
        pids = {node: self.cluster.rank_on(job, node)["pid"] for node in ("node1", "node2", "node3")}
        self.cluster.kill("node3")  # of which the trainer is stopped, and dies all the same
        until(lambda: not is_trainer(pids["node3"]), "the end of a stopped trainer whose daemon died", timeout=60)
        self.cluster.kill("node2")
        until(lambda: not is_trainer(pids["node2"]), "the end of a trainer whose daemon died", timeout=60)
        self.cluster.wait(job, "succeeded")
        mine = {int(pid) for pid, _ in processes_of(self.lab.folder)}
        self.assertFalse({pids["node2"], pids["node3"]} & mine)

    def test_after_the_cluster(self):
        """In the middle of a job, with a trainer that cannot listen."""
        self.cluster.fault("node1", "loop.compute=stop@15")
        job = self.lab.job("down")
        self.cluster.submit(job)
        stopped, slots = self.lab.stopped(), self.slots()
        port = int(self.cluster.etcd.rpartition(":")[2])
        self.assertTrue(listening(port))
        self.assertIn(stopped, self.cluster.trainers())
        self.cluster.down()
        until(lambda: not processes_of(self.lab.folder), "the end of everything after dev down", timeout=60)
        self.assertFalse(listening(port))
        self.check_gone(slots, bases=True)
        code, text = self.cluster.ctl_code("dev", "status", "--dir", self.cluster.folder)
        self.assertEqual(code, 3, text)
        self.cluster.down()  # is done already, and says so quietly

    def node_logs(self):
        """What daemons and keepers have said so far."""
        text = ""
        for node in ("node1", "node2", "node3"):
            with open(os.path.join(self.cluster.folder, node, "log"), errors="replace") as file:
                text += file.read()
        return text

    def train(self, name):
        """(job, its slots, its trainers), some steps on."""
        job = self.lab.job(name, train__steps=4000)
        self.cluster.submit(job)
        self.cluster.wait(job, "step=5")
        return job, self.slots(), self.cluster.trainers()

    def kill_daemons(self, keepers):
        for pid, program in processes_of(self.lab.folder):
            try:
                with open("/proc/%d/comm" % pid) as file:
                    is_keeper = file.read().strip() == "sdtraind-keeper"
                if program == "sdtraind" and keepers in (is_keeper, True):
                    os.kill(pid, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                pass  # a keeper that is done

    def up(self):
        """`dev up`, that somebody else waits for."""
        return subprocess.Popen([self.lab.path("bin/sdctl"), "dev", "up", "--dir", self.cluster.folder],
                                env=dict(self.lab.environment, **self.cluster.environment), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def check_up(self, going):
        text = going.communicate(timeout=60)[0]
        self.assertEqual(going.returncode, 0, text)

    def freeze(self, pid):
        """Nothing ends it, SIGKILL neither, until the function that this returns is called."""
        folder = os.path.join(FREEZER, "%s-%d" % (os.path.basename(self.lab.folder), pid))
        try:
            os.mkdir(folder)
        except OSError as e:
            self.skipTest("no freezer: %s" % e)
        self.lab.undo("rmdir", folder)
        self.lab.undo("sh", "-c", "echo THAWED >%s/freezer.state" % folder)
        with open(folder + "/cgroup.procs", "w") as file:
            file.write(str(pid))
        with open(folder + "/freezer.state", "w") as file:
            file.write("FROZEN")

        def state():
            with open(folder + "/freezer.state") as file:
                return file.read().strip()
        def thaw():
            with open(folder + "/freezer.state", "w") as file:
                file.write("THAWED")
        self.addCleanup(thaw)
        until(lambda: state() == "FROZEN", "a frozen trainer")
        return thaw

    def test_daemons_that_are_killed_with_their_keepers(self):
        """SIGKILL to every process of the daemons: trainers end, and the next dev up clears what is left. It is up once
        the new daemons are: the records of those that died stay for as long as their leases."""
        job, slots, trainers = self.train("killed")
        self.kill_daemons(keepers=True)
        until(lambda: not any(is_trainer(pid) for pid in trainers), "the end of the trainers", timeout=60)
        options = {node: self.lab.path("options", node) for node in ("node1", "node2", "node3")}
        for path in options.values():  # without which no daemon begins
            os.remove(path)
            os.mkfifo(path)
        going = self.up()
        until(lambda: "/nodes/" not in self.cluster.keys(), "the end of the old records")
        self.assertIsNone(going.poll(), "dev up is done, and no daemon has begun")
        for path in options.values():
            with open(path, "w") as file:
                file.write("--hang-floor-sec 60")
            os.remove(path)
        self.check_up(going)
        self.cluster.wait(job, "running")
        self.cluster.down()
        until(lambda: not processes_of(self.lab.folder), "the end of everything", timeout=60)
        self.check_gone(slots, bases=True)

    def test_a_process_without_its_environment(self):
        """What a rank starts carries no mark when its environment is cleared, and where there are no cgroups, either, only
        its session says whose it is: a daemon that dies does not leave it behind."""
        for node in ("node1", "node2", "node3"):
            self.cluster.configure(node, cgroup="off")
        with open(self.lab.path("bin/sdtrainer")) as file:
            wrapper = file.read()
        self.lab.write("bin/sdtrainer", wrapper.replace(
            "exec ", "env -i sleep 10000 & echo $! >\"$TESTLAB/strays.$$\"\nexec ", 1))
        self.addCleanup(self.lab.write, "bin/sdtrainer", wrapper)
        _, _, trainers = self.train("cleared")
        strays = []
        for pid in trainers:
            with open(self.lab.path("strays.%d" % pid)) as file:
                strays.append(int(file.read()))
        try:
            self.assertTrue(all(map(is_trainer, strays)))
            self.assertFalse(set(strays) & {pid for pid, _ in processes_of(self.lab.folder)})
            self.kill_daemons(keepers=False)
            until(lambda: not any(map(is_trainer, trainers + strays)), "the end of what ranks have started", timeout=60)
        finally:
            for pid in filter(is_trainer, strays):
                os.kill(pid, signal.SIGKILL)

    def test_a_trainer_that_dies_late(self):
        """What a keeper has killed may need long for its end, longer than anybody is told to wait: it is waited for, by
        the keeper and by the daemon that comes next."""
        job, slots, trainers = self.train("late")
        thaw = self.freeze(trainers[0])
        self.kill_daemons(keepers=False)
        going = self.up()
        until(lambda: "waiting for the keeper of an earlier life" in self.node_logs(), "a daemon that waits", timeout=60)
        until(lambda: "waiting for its end" in self.node_logs(), "a keeper that waits", timeout=60)
        thaw()
        self.check_up(going)
        self.assertFalse(is_trainer(trainers[0]))
        thaw = self.freeze(self.slots() and self.cluster.trainers()[0])
        said = self.node_logs().count("waiting for its end")
        self.cluster.down()
        until(lambda: self.node_logs().count("waiting for its end") > said, "a keeper that waits", timeout=60)
        thaw()
        until(lambda: not processes_of(self.lab.folder), "the end of everything", timeout=60)
        self.check_gone(slots, bases=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
