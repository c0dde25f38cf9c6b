# SPDX-License-Identifier: Apache-2.0
"""What the tests of the whole system share: a folder with the programs, data and jobs of one test, runs
without a cluster, and clusters.

Everything a lab starts carries TESTLAB=<folder> in its environment; that is how what is left over is found.
A keeper, a process of its own, waits for the test's end, kills what is left, and removes the folder, so
that nothing stays behind a test that was killed. Waiting is always for a condition, with an end.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import dataset
import history

BIN = os.environ.get("SDTRAIN_BIN") or os.path.join(os.path.dirname(__file__), "../../build/release/bin")
SOURCE = os.environ.get("SDTRAIN_SOURCE") or os.path.join(os.path.dirname(__file__), "../..")

# In front of the real trainer: the next file of faults/<node>/ is what this life suffers.
TRAINER = """#!/bin/sh
node=$(tr '\\0' '\\n' </proc/$PPID/cmdline | sed -n 's,.*/\\(node[0-9]*\\)/config.json$,\\1,p')
for fault in "$TESTLAB/faults/$node"/*; do
    if mv "$fault" "$TESTLAB/taken/$$" 2>/dev/null; then
        SDTRAIN_FAULT=$(cat "$TESTLAB/taken/$$")${SDTRAIN_FAULT:+,$SDTRAIN_FAULT}
        export SDTRAIN_FAULT
        break
    fi
done
exec "$(cat "$TESTLAB/programs/$node.sdtrainer" 2>/dev/null || echo "%s")" "$@"
"""

# In front of the real sdtraind: what the test wants of this node goes over the file that dev up writes.
DAEMON = """#!/bin/sh
node=$(echo "$*" | sed -n 's,.*/\\(node[0-9]*\\)/config.json$,\\1,p')
exec "$(cat "$TESTLAB/programs/$node.sdtraind" 2>/dev/null || echo "%s")" "$@" $(cat "$TESTLAB/options/$node" 2>/dev/null)
"""

# In front of the real sdcontroller.
CONTROLLER = """#!/bin/sh
name=$(echo "$*" | sed -n 's,.*/\\(controller[0-9]*\\)/config.json$,\\1,p')
exec "$(cat "$TESTLAB/programs/$name.sdcontroller" 2>/dev/null || echo "%s")" "$@"
"""

UNET = {"_class_name": "UNet2DConditionModel", "sample_size": 16, "in_channels": 4, "out_channels": 4,
        "block_out_channels": [16, 32], "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "layers_per_block": 1,
        "attention_head_dim": [2, 4], "cross_attention_dim": 32, "norm_num_groups": 8,
        "use_linear_projection": True}


# A rank that the test has stopped, and those that wait for it, are not taken for hung. Leases stay as short as the
# controllers': a lost peer is waited for only so long.
BEARING = "--hang-floor-sec 60"


class TimedOut(AssertionError):
    pass


def until(condition, what, timeout=120, pause=0.01):
    """Asks again every few milliseconds until the condition gives something true, which it returns. A question that takes
    long, as a process of its own does, is asked less often: most of the machine is left to what is waited for."""
    end = time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        got = condition()
        if got:
            return got
        now = time.monotonic()
        if now > end:
            raise TimedOut("not within %d s: %s" % (timeout, what))
        time.sleep(max(pause, min(2 * (now - asked), 0.5)))


def processes_of(folder):
    """[(pid, program)] of everything that runs and was started by the lab in that folder."""
    found, mark = [], b"TESTLAB=" + folder.encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as file:
                ours = mark in file.read().split(b"\0")
            if ours:
                found.append((int(name), os.path.basename(os.readlink("/proc/%s/exe" % name))))
        except OSError:
            continue  # gone meanwhile, or a zombie
    return found


def process_state(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


def _is_daemons_keeper(pid):
    """The child of sdtraind that clears up after it; it needs a moment, and ends by itself."""
    try:
        with open("/proc/%d/comm" % pid) as file:
            return file.read().strip() == "sdtraind-keeper"
    except OSError:
        return False


def _kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _undo(commands):
    """Those that fail, which is what a busy thing does: what is in use goes once its users are dead."""
    return [command for command in commands
            if subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0]


def _keep(folder, pipe):
    """The keeper's life: until the test's end of the pipe is closed, by will or by death."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.read(pipe, 1)
    commands = []
    if os.path.exists(folder + "/undo"):
        with open(folder + "/undo") as file:
            commands = [json.loads(line) for line in reversed(file.readlines())]
    commands = _undo(commands)
    for attempt in range(200):
        left = {pid for pid, _ in processes_of(folder)}
        if not left:
            break
        _kill(left if attempt > 100 else (pid for pid in left if not _is_daemons_keeper(pid)))
        time.sleep(0.05)
    _undo(commands)
    shutil.rmtree(folder, ignore_errors=True)


class Lab:
    def __init__(self, latents=dataset.LATENTS, base="/dev/shm"):
        self.latents = latents
        self.folder = tempfile.mkdtemp(prefix="sdtrain-lab-", dir=base if os.access(base, os.W_OK) else None)
        pipe, self.keeper_pipe = os.pipe()
        sys.stdout.flush()
        self.keeper = os.fork()
        if self.keeper == 0:
            os.close(self.keeper_pipe)
            try:
                _keep(self.folder, pipe)
            finally:
                os._exit(0)
        os.close(pipe)
        self.environment = dict(os.environ, TESTLAB=self.folder)
        for name in ("SDTRAIN_FAULT", "SDTRAIN_ETCD", "SDTRAIN_CLUSTER", "SDTRAIN_DEV", "SDTRAIN_CONTEXT"):
            self.environment.pop(name, None)
        for name in ("bin", "faults", "taken"):
            os.makedirs(self.path(name))
        # A copy, since it looks for the others beside itself.
        shutil.copy(os.path.join(BIN, "sdctl"), self.path("bin", "sdctl"))
        for name, script in (("sdtrainer", TRAINER), ("sdtraind", DAEMON), ("sdcontroller", CONTROLLER)):
            self.write("bin/" + name, script % os.path.abspath(os.path.join(BIN, name)))
            os.chmod(self.path("bin", name), 0o755)
        self.write("unet.json", json.dumps(UNET))
        self.clusters = 0
        self.newest = None  # cluster

    def programs(self, folder, name, *programs):
        """From its next start on the node or controller of that name runs these programs from another folder than BIN."""
        for program in programs:
            self.write("programs/%s.%s" % (name, program), os.path.join(folder, program))

    def undo(self, *command):
        """To be done at the lab's end, the newest first, also when the test is killed."""
        with open(self.path("undo"), "a") as file:
            file.write(json.dumps(command) + "\n")

    def close(self):
        os.close(self.keeper_pipe)
        os.waitpid(self.keeper, 0)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def data(self, name, n_samples, seed=1):
        dataset.write(self.path(name), n_samples, seed, latents=self.latents)
        return self.path(name)

    def job(self, name, data=None, **changes):
        """A job of 40 steps of 4 grains, as a dict; changes name keys as "train.steps" with '__' for '.'."""
        data = data or self.path("data")
        job = {"name": name, "world": {"min": 1, "max": 4}, "model": {"config": self.path("unet.json")},
               "data": {"streams": [{"uri": data}], "empty_text": data + "/empty.npy", "shuffle_window": 32},
               "train": {"global_batch": 4, "grain": 1, "steps": 40, "optimizer": {"lr": 1e-3, "warmup_steps": 5},
                         "ema": {"decay": 0.99, "start_step": 10}},
               "checkpoint": {"uri": self.path("checkpoints", name), "every_steps": 5}}
        for key, value in changes.items():
            *path, last = key.split("__")
            at = job
            for part in path:
                at = at.setdefault(part, {})
            at[last] = value
        return json.loads(json.dumps(job))  # shares nothing with the changes

    def job_file(self, job):
        return self.write("jobs/%s.json" % job["name"], json.dumps(job))

    def run(self, *command, fault=None, timeout=300, errors=subprocess.STDOUT):
        """(exit code, output and errors together); negative codes are signals."""
        environment = dict(self.environment, **({"SDTRAIN_FAULT": fault} if fault else {}))
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True,
                              errors="replace", timeout=timeout, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout

    def train(self, job, fault=None, timeout=300):
        """One life of the job on one rank without a cluster. In S3 nothing tells that the life before is over."""
        take_over = ["--take-over"] if job["checkpoint"]["uri"].startswith("s3://") else []
        return self.run(os.path.join(BIN, "sdtrainer"), "run", "--job", self.job_file(job), *take_over, fault=fault,
                        timeout=timeout)

    def reference(self, job, timeout=300):
        """Trains undisturbed on one rank: what every other history must end with."""
        code, text = self.train(job, timeout=timeout)
        if code != 0:
            raise AssertionError("the undisturbed run of %s exits %d:\n%s" % (job["name"], code, text[-4000:]))
        return Outcome(job["name"], self.digest(job), self.metrics(job))

    def order(self, job, step, world=1, noise=0):
        """The rows of `sdtrainer order`, by the names of their columns."""
        code, text = self.run(os.path.join(BIN, "sdtrainer"), "order", "--job", self.job_file(job), "--step", str(step),
                              "--world", str(world), "--noise", str(noise), errors=subprocess.DEVNULL)
        if code != 0:
            raise AssertionError("sdtrainer order exits %d" % code)
        head, *lines = text.splitlines()
        names = head.split()
        return [dict(zip(names, line.split(None, len(names) - 1))) for line in lines]

    def digest(self, job):
        """The state digest in the newest manifest."""
        return self.manifests(job)[-1][1]["digest"]

    def manifests(self, job):
        """[(path, manifest)] in the order of steps. A job that runs may sweep one that was just listed."""
        found = []
        for folder, _, _ in os.walk(job["checkpoint"]["uri"]):
            path = os.path.join(folder, "manifest.json")
            try:
                with open(path) as file:
                    found.append((path, json.load(file)))
            except FileNotFoundError:
                pass
        return sorted(found, key=lambda item: (item[1]["step"], item[1]["generation"]))

    def metrics(self, job):
        """The lines of metrics.jsonl: each step exactly once, in order."""
        with open(os.path.join(job["checkpoint"]["uri"], "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        steps = [line["step"] for line in lines]
        if steps != list(range(1, job["train"]["steps"] + 1)):
            raise AssertionError("%s: metrics.jsonl has the steps %s" % (job["name"], steps))
        return lines

    def forget_faults(self):
        shutil.rmtree(self.path("faults"))
        os.makedirs(self.path("faults"))

    def stopped(self, other_than=None):
        """The pid of a trainer that a fault has stopped: the step it is in cannot end before SIGCONT."""
        def look():
            return next((pid for pid, program in processes_of(self.folder)
                         if program == "sdtrainer" and pid != other_than and process_state(pid) == "T"), None)
        try:
            return until(look, "a trainer that is stopped")
        except TimedOut as e:
            raise TimedOut("%s; there is %s\n%s" % (e, processes_of(self.folder), self.newest.story() if self.newest else "")) from e

    def cluster(self, nodes=3, **options):
        self.clusters += 1
        self.newest = Cluster(self, self.path("cluster%d" % self.clusters), nodes, **options)
        return self.newest


class Outcome:
    def __init__(self, name, digest, metrics):
        self.name, self.digest, self.metrics = name, digest, metrics


class Cluster:
    """`sdctl dev up` in a folder of the lab."""

    def __init__(self, lab, folder, nodes, controllers=1, slots=1, patient=(), trainers=(), bearing=BEARING, judged=True,
                 up=()):
        """patient: nodes that are not lost while a test does this and that. trainers: their environment. bearing: options
        of the other nodes, NODE is the node's name. up: more options of `dev up`. judged: its records' history is, when it goes down; not where a test writes, or takes away,
        records that only programs write."""
        self.lab, self.folder = lab, folder
        self.sdctl = lab.path("bin/sdctl")
        self.environment = {}
        for i in range(1, nodes + 1):
            name = "node%d" % i
            words = ["--hang-floor-sec 120 --lease-sec 20"] if name in patient else [bearing.replace("NODE", name)]
            lab.write("options/" + name, " ".join(words + ["--trainer-environment=" + pair for pair in trainers]))
        text = self.ctl("dev", "up", "--dir", folder, "--nodes", str(nodes), "--slots", str(slots),
                        "--controllers", str(controllers), *up)
        line = next(line for line in text.splitlines() if line.startswith("export "))
        self.environment = dict(word.split("=", 1) for word in line.split()[1:])
        self.etcd = self.environment["SDTRAIN_ETCD"]
        self.recorder = history.Recorder(lab.path("history%d" % lab.clusters), self.environment["SDTRAIN_CLUSTER"],
                                         self.etcd, environment=lab.environment) if judged else None

    def ctl_code(self, *arguments, timeout=90):
        done = subprocess.run([self.sdctl, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                              env=dict(self.lab.environment, **self.environment))
        return done.returncode, done.stdout

    def ctl(self, *arguments, timeout=90):
        code, text = self.ctl_code(*arguments, timeout=timeout)
        if code != 0:
            raise AssertionError("sdctl %s exits %d: %s" % (" ".join(arguments), code, text))
        return text

    def down(self):
        try:
            self._judge()
        finally:
            self.ctl("dev", "down", "--dir", self.folder)

    def _judge(self):
        """What etcd cannot tell any more, because a test has ended it, is not judged: what it told before is."""
        if not self.recorder or self.recorder.ended:
            return
        try:
            print(history.judge(self.recorder, os.path.basename(sys.argv[0])[:-len(".py")], timeout=10), flush=True)
        except history.NotWhole as e:
            print(e, flush=True)

    def kill(self, name):
        """SIGKILL to a process of the cluster: node2, controller1, etcd."""
        self.ctl("dev", "kill-node", name, "--dir", self.folder)

    def pid(self, name):
        with open(os.path.join(self.folder, "dev.json")) as file:
            return next(p["pid"] for p in json.load(file)["processes"] if p["name"] == name)

    def start(self, name):
        self.ctl("dev", "start-node", name, "--dir", self.folder)

    def incarnation(self, node):
        """What the node's record says of the daemon's start; None: there is no record."""
        done = subprocess.run(["etcdctl", "--endpoints", self.etcd, "get", "--print-value-only", "/sdtrain/dev/nodes/" + node],
                              capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout)["incarnation"] if done.stdout.strip() else None

    def configure(self, name, **settings):
        """Gives a daemon or controller other settings, which it takes with a restart. Waits for a daemon's new record: the
        one of its life before stands until the lease has run out."""
        path = os.path.join(self.folder, name, "config.json")
        with open(path) as file:
            config = dict(json.load(file), **settings)
        before = self.incarnation(name)
        self.kill(name)
        with open(path, "w") as file:
            json.dump(config, file)
        self.start(name)
        if before is not None:
            until(lambda: self.incarnation(name) not in (None, before), "%s with its new settings" % name)

    def submit(self, job, *options):
        self.ctl("job", "start", "-f", self.lab.job_file(job), *options)

    def status(self, job):
        return json.loads(self.ctl("job", "status", job["name"], "-o", "json"))

    def wait(self, job, wanted, timeout=120):
        code, text = self.ctl_code("job", "wait", job["name"], "--for", wanted, "--timeout", str(timeout),
                                   timeout=timeout + 30)
        if code != 0:
            raise TimedOut("job wait --for %s exits %d: %s\n%s" % (wanted, code, text, self.story()))

    def finish(self, job, timeout=180):
        """Waits for success; what the job has become."""
        self.wait(job, "succeeded", timeout)
        return Outcome(job["name"], self.status(job)["checkpoint"]["digest"], self.lab.metrics(job))

    def fault(self, node, *settings):
        """The next lives of the node's trainers suffer these, one each; "": nothing."""
        for i, setting in enumerate(settings):
            self.lab.write("faults/%s/%02d" % (node, i), setting)

    def rank_on(self, job, node):
        """The rank that the node trains, as `job status` shows it, once it is known."""
        return until(lambda: next((rank for rank in self.status(job)["world"]["ranks"]
                                   if rank["node"] == node and rank["pid"] > 0), None),
                     "a rank of %s on %s" % (job["name"], node))

    def keys(self):
        """The keys of all records, one a line."""
        return subprocess.run(["etcdctl", "--endpoints", self.etcd, "get", "--prefix", "/sdtrain/", "--keys-only"],
                              env=dict(os.environ, ETCDCTL_API="3"), check=True, stdout=subprocess.PIPE, text=True,
                              timeout=60).stdout

    def trainers(self):
        return [pid for pid, program in processes_of(self.lab.folder) if program == "sdtrainer"]

    def story(self, lines=40):
        """The last lines of each log, for a person who looks for the cause of a failure."""
        text = ""
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                if (name == "log" and "/etcd" not in folder) or name.startswith("rank"):
                    with open(path, errors="replace") as file:
                        text += "--- %s\n%s" % (path, "".join(file.readlines()[-lines:]))
        return text


class LabCase(unittest.TestCase):
    """A test with a lab of its own, and its data in <lab>/data. dataset.SMALL suits jobs that are compared, and whose faults
    stop them where they are needed; LATENTS those that must still train while the test does something."""
    n_samples, latents = 96, dataset.LATENTS

    @classmethod
    def setUpClass(cls):
        cls.lab = Lab(cls.latents)
        cls.addClassCleanup(cls.lab.close)
        cls.lab.data("data", cls.n_samples)

    def check_same(self, outcome, reference, what):
        for a, b in zip(outcome.metrics, reference.metrics):
            self.assertEqual(a["loss_hex"], b["loss_hex"], "%s: loss of step %d" % (what, b["step"]))
            self.assertEqual(a, b, what)
        self.assertEqual(outcome.digest, reference.digest, what)
