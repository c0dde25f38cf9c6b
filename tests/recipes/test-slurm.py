#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ops/recipes/slurm, on a Slurm of one node in a network namespace: the node joins, leaves without a lost step when the
batch job is told to, is queued again, comes back, and goes for good when the training job has ended.

Root and Debian's slurm-wlm; ops/test --packages."""
import os
import shutil
import signal
import subprocess
import sys
import unittest

SOURCE = os.path.abspath(os.environ.get("SDTRAIN_SOURCE") or os.path.join(os.path.dirname(__file__), "../.."))
sys.path.insert(0, os.path.join(SOURCE, "tests/system"))
from lab import BIN, LabCase, until  # noqa: E402

BATCH = os.path.join(SOURCE, "ops/recipes/slurm/sdtrain.sbatch")
CONF = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/saved
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldTimeout=300
SlurmdTimeout=300
InactiveLimit=0
MinJobAge=300
KillWait=30
ReturnToService=2
NodeName=lent NodeHostname=localhost NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=lent Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    if os.geteuid() != 0:
        return "Slurm needs root here"
    for program in ("slurmctld", "slurmd", "sbatch", "munged", "unshare", "ip", "pkill"):
        if not shutil.which(program):
            return "the recipe for Slurm needs %s (ops/packages recipes)" % program
    return None


class Slurm(LabCase):
    def start(self, *words):
        """A daemon of Slurm, which stays in the foreground and ends with the lab."""
        with open(self.lab.path(words[0] + ".out"), "w") as out:
            process = subprocess.Popen(words, env=self.environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

        def end():
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.addCleanup(end)

    def setUp(self):
        folder = self.lab.folder
        # A step's keeper writes over its environment, by which the lab knows what is its own; but the network is this test's
        # alone. That it fails has it done once more when slurmd is gone.
        self.lab.undo("sh", "-c", "pkill -KILL --ns $$ --nslist net -x slurmstepd; exit 1")
        for name in ("spool", "saved"):
            os.makedirs(self.lab.path(name))
        os.chmod(folder, 0o755)
        self.lab.write("slurm.conf", CONF.format(folder=folder, cpus=os.cpu_count()))
        self.environment = dict(self.lab.environment, SLURM_CONF=self.lab.path("slurm.conf"))
        key = self.lab.path("munge.key")
        with open(key, "wb") as file:
            file.write(os.urandom(128))
        os.chmod(key, 0o600)
        self.start("munged", "--foreground", "--force", "--key-file=" + key, "--socket=" + self.lab.path("munge.socket"),
                   "--pid-file=" + self.lab.path("munge.pid"), "--seed-file=" + self.lab.path("munge.seed"), "--num-threads=2")
        until(lambda: os.path.exists(self.lab.path("munge.socket")), "munged")
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D", "-N", "lent")
        until(lambda: self.slurm("sinfo", "-h", "-o", "%T", check=False).strip() == "idle", "Slurm's node is idle")

    def slurm(self, *words, check=True):
        done = subprocess.run(words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120, stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise AssertionError("%s exits %d: %s" % (" ".join(words), done.returncode, done.stdout))
        return done.stdout

    def state(self, number):
        return self.slurm("squeue", "-h", "-t", "all", "-j", number, "-o", "%T").strip()

    def test_nodes_are_lent(self):
        cluster = self.lab.cluster(1, patient=["node1"])
        self.addCleanup(cluster.down)
        reference = self.lab.reference(self.lab.job("reference"))
        job = self.lab.job("lent", world={"min": 2, "max": 2}, checkpoint__every_steps=40)
        self.environment.update(cluster.environment, SDTRAIN_SHARED=self.lab.folder, SDTRAIN_BIN=os.path.abspath(BIN),
                                SDTRAIN_ADDRESS="127.0.0.1", TMPDIR=self.lab.path(),
                                SDTRAIN_CONFIG=self.lab.write("lent.json", '{"lease_sec": 2, "kernel_log": "off"}'))
        number = self.batch("one.out", SDTRAIN_JOB="lent")
        before = until(lambda: cluster.incarnation("lent"), "the lent node")
        cluster.fault("node1", "loop.compute=stop@9")  # the job cannot end before it is seen
        cluster.submit(job)
        stopped = self.lab.stopped()
        self.slurm("scancel", "--batch", "--signal=TERM", number)
        until(lambda: "drains lent" in cluster.status(job)["reason"], "the node takes leave")
        os.kill(stopped, signal.SIGCONT)
        until(lambda: "drained; queued again" in self.said("one.out"), "it is queued again")
        self.assertNotEqual(cluster.status(job)["phase"], "succeeded")
        until(lambda: cluster.incarnation("lent") not in (None, before), "it is back")
        self.check_same(cluster.finish(job), reference, "lent")
        self.assertEqual(cluster.status(job)["incidents"], [], "nothing failed, and no step was lost")
        until(lambda: self.state(number) == "COMPLETED", "the allocation ends with the training job")

        # Who is cancelled is not queued again.
        number = self.batch("two.out")
        until(lambda: "registered NODE=lent" in self.said("two.out"), "the lent node")
        self.slurm("scancel", number)
        until(lambda: "the daemons have ended" in self.said("two.out"), "it has ended")
        until(lambda: self.state(number) == "CANCELLED", "it is cancelled")

    def batch(self, output, **environment):
        done = subprocess.run(["sbatch", "--parsable", "--output", self.lab.path(output), BATCH], check=True, text=True,
                              stdout=subprocess.PIPE, env=dict(self.environment, **environment), timeout=60)
        return done.stdout.strip()

    def said(self, output):
        try:
            with open(self.lab.path(output)) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def run(self, result=None):
        failures = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > failures:
            print(self.said("one.out") + self.said("two.out") + self.said("slurmctld.log"))


if __name__ == "__main__":
    lacking = why_not()
    if lacking:
        print("skipped: " + lacking)
        sys.exit(0)
    if "SDTRAIN_SLURM_NETWORK" not in os.environ:
        # A network and a name of its own, with loopback alone; Slurm resolves no name where no other address is.
        os.environ["SDTRAIN_SLURM_NETWORK"] = "1"
        os.execvp("unshare", ["unshare", "--net", "--uts", "sh", "-c", 'ip link set lo up && ip addr add 10.213.0.1/32 dev lo && hostname localhost && exec "$@"', "sh",
                              sys.executable, *sys.argv])
    unittest.main(verbosity=2)
