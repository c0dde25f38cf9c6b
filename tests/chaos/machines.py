# SPDX-License-Identifier: Apache-2.0
"""A cluster on machines of its own: members of etcd, controllers and nodes, each in a network namespace.

The same programs, folders and files as `sdctl dev up` makes, but each machine has its address, and can be
killed, frozen, cut off or powered off alone.
"""
import base64
import json
import os
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

import history  # noqa: E402
import lab as system  # noqa: E402
from lab import BIN, Cluster, process_state, processes_of  # noqa: E402
from network import Network  # noqa: E402

CLUSTER = "chaos"
PREFIX = "/sdtrain/%s/" % CLUSTER
LEASE_SEC = 2
FREEZERS = "/sys/fs/cgroup/freezer"
TRIES = 4  # of a question to etcd, which may be electing
FIRST = {"admin": 1, "etcd": 10, "controller": 20, "node": 30}
# A step costs its pace and next to no processor; what a test wants of one life of a trainer comes in front.
PACE = "SDTRAIN_FAULT=loop.compute=slow@*"


def until(condition, what, timeout=120):
    """Asks less often, for each question is a process of its own."""
    return system.until(condition, what, timeout, pause=0.05)


def _no_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Machines(Cluster):
    def __init__(self, lab, nodes=3, members=1, controllers=2, pace=PACE, disks=None, node=None, controller=None):
        """disks: {member of etcd: folder for its data}; node, controller: more settings of these."""
        self.lab, self.network = lab, Network(lab)
        self.folder = lab.path("cluster%d" % lab.clusters)
        self.running, self.frozen, self.environments = {}, set(), {}
        self.address = {}
        self.names = {"etcd": ["etcd%d" % i for i in range(1, members + 1)],
                      "controller": ["controller%d" % i for i in range(1, controllers + 1)],
                      "node": ["node%d" % i for i in range(1, nodes + 1)]}
        for kind in ("admin", "etcd", "controller", "node"):
            for i, name in enumerate(self.names.get(kind, [kind])):
                self.address[name] = self.network.add(name, FIRST[kind] + i)
                os.makedirs(self.path(name))
        self.data = {name: (disks or {}).get(name) or self.path(name, "data") for name in self.names["etcd"]}
        self.etcd = ",".join(self.address[name] + ":2379" for name in self.names["etcd"])
        self.environment = {"SDTRAIN_ETCD": self.etcd, "SDTRAIN_CLUSTER": CLUSTER}
        common = {"cluster": CLUSTER, "etcd": self.etcd, "lease_sec": LEASE_SEC}
        for name in self.names["controller"]:
            self._write_config(name, common, dict({"name": name, "max_strikes": 0, "start_deadline_sec": 30,
                                                   "leave_deadline_sec": 30}, **(controller or {})))
        for i, name in enumerate(self.names["node"]):
            self._write_config(name, common, dict(
                {"node": name, "machine_id": "%032x" % (i + 1), "address": self.address[name],
                 "run_dir": self.path(name, "run"), "log_dir": self.path(name, "logs"), "disk_min_bytes": 0,
                 "trainer": lab.path("bin/sdtrainer"), "trainer_environment": [pace] if pace else []}, **(node or {})))
        for name in self.address:
            if name != "admin":
                self.start(name)
        until(lambda: len(self.records("nodes/")) == nodes, "all nodes", 120)
        self.recorder = history.Recorder(lab.path("history%d" % lab.clusters), CLUSTER, self.etcd,
                                         self.network.inside("admin"), lab.environment)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def _write_config(self, name, *settings):
        with open(self.path(name, "config.json"), "w") as file:
            json.dump({key: value for part in settings for key, value in part.items()}, file)

    # ---- processes ----

    def _command(self, name):
        if name in self.names["etcd"]:
            mine = "http://%s:" % self.address[name]
            return ["etcd", "--name=" + name, "--data-dir=" + self.data[name], "--logger=zap",
                    "--listen-client-urls=" + mine + "2379", "--advertise-client-urls=" + mine + "2379",
                    "--listen-peer-urls=" + mine + "2380", "--initial-advertise-peer-urls=" + mine + "2380",
                    "--initial-cluster=" + ",".join("%s=http://%s:2380" % (n, self.address[n])
                                                    for n in self.names["etcd"]),
                    "--heartbeat-interval=50", "--election-timeout=500"] + (
                        [] if self.data[name] != self.path(name, "data") else ["--unsafe-no-fsync"])
        program = "sdcontroller" if name in self.names["controller"] else "sdtraind"
        command = [self.lab.path("bin", program), "--config", self.path(name, "config.json")]
        return command + (["--record", self.path(name, "events.jsonl")] if program == "sdcontroller" else [])

    def start(self, name, fault=None, **environment):
        """Starts the machine's program, in the machine's network and in a freezer of its own."""
        environment = dict(self.lab.environment, **environment)
        if fault:
            environment["SDTRAIN_FAULT"] = fault
        freezer, command = self._freezer(name), self.network.inside(name) + self._command(name)
        if freezer:
            command = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', freezer] + command
        with open(self.path(name, "log"), "ab") as log:
            self.running[name] = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                                  stderr=log, start_new_session=True, preexec_fn=_no_cores)
        return self.running[name]

    def _freezer(self, name):
        if not os.path.exists(FREEZERS + "/cgroup.procs"):
            return None
        path = "%s/%s-%s" % (FREEZERS, self.network.prefix, name)
        if not os.path.isdir(path):
            os.mkdir(path)
            self.lab.undo("rmdir", path)
            self.lab.undo("sh", "-c", "echo THAWED >%s/freezer.state; false" % path)
        return path

    def pid(self, name):
        return self.running[name].pid

    def alive(self, name):
        return self.running[name].poll() is None

    def send(self, name, number):
        self.running[name].send_signal(number)

    def kill(self, name, number=signal.SIGKILL):
        """Ends the machine's program; what it leaves behind is its own affair."""
        self.send(name, number)
        self.running[name].wait(60)

    def trainer_on(self, job, node):
        return self.rank_on(job, node)["pid"]

    # ---- machines ----

    def power_off(self, name):
        """Silently: nobody gets a FIN or a RST."""
        self.network.pull(name)
        for _ in range(3):
            for pid in self.network.processes(name):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.running[name].wait(60)
        until(lambda: not self.network.processes(name), "the end of everything on %s" % name, 60)

    def power_on(self, name, **environment):
        self.network.plug(name)
        self.start(name, **environment)

    def freeze(self, name):
        """Everything on the machine stands still, and its network answers nothing but what a kernel does."""
        self.frozen.add(name)
        freezer = self._freezer(name)
        if freezer:
            self._set_freezer(freezer, "FROZEN")
        else:
            for pid in self.network.processes(name):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self, name):
        self.frozen.discard(name)
        freezer = self._freezer(name)
        if freezer:
            self._set_freezer(freezer, "THAWED")
        else:
            for pid in self.network.processes(name):
                os.kill(pid, signal.SIGCONT)

    def _set_freezer(self, freezer, state):
        with open(freezer + "/freezer.state", "w") as file:
            file.write(state)

        def settled():
            with open(freezer + "/freezer.state") as file:
                return file.read().strip() == state
        until(settled, "%s of %s" % (state, freezer), 60)

    def hold(self, pid):
        """hold(True): no signal reaches that process, not even SIGKILL, until hold(False). None where that can't be."""
        if not os.path.exists(FREEZERS + "/cgroup.procs"):
            return None
        path = self._freezer("held")
        with open(path + "/cgroup.procs", "w") as file:
            file.write(str(pid))
        return lambda on: self._set_freezer(path, "FROZEN" if on else "THAWED")

    # ---- what etcd says ----

    def etcdctl(self, *arguments, timeout=30, members=None):
        endpoints = ",".join(self.address[name] + ":2379" for name in members) if members else self.etcd
        done = subprocess.run(self.network.inside("admin") + ["etcdctl", "--endpoints", endpoints, *arguments],
                              env=dict(os.environ, ETCDCTL_API="3"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=timeout)
        if done.returncode != 0:
            raise AssertionError("etcdctl %s exits %d: %s" % (" ".join(arguments), done.returncode, done.stderr))
        return done.stdout

    def records(self, below=""):
        """{key behind the cluster's prefix: record}; {} when etcd does not answer. One hiccup is not an answer yet."""
        return self._asked(lambda: self.answer(below)) or {}

    def _asked(self, ask):
        """Something other than None, or None after some tries."""
        for _ in range(TRIES - 1):
            found = ask()
            if found is not None:
                return found
            time.sleep(0.1)
        return ask()

    def answer(self, below=""):
        """The records; None when etcd does not answer now."""
        try:
            text = self.etcdctl("get", "--prefix", PREFIX + below, "-w", "json", "--command-timeout=3s")
        except (AssertionError, subprocess.TimeoutExpired):
            return None
        found = {}
        for kv in json.loads(text).get("kvs", []):
            key = base64.b64decode(kv["key"]).decode()[len(PREFIX):]
            value = base64.b64decode(kv.get("value", "")).decode()
            found[key] = json.loads(value) if value.startswith("{") else value
        return found

    def controller_leader(self):
        """The name of the controller whose key is the oldest; None: nobody leads, or etcd does not answer."""
        return self._asked(self._controller_leader) or None

    def _controller_leader(self):
        try:
            text = self.etcdctl("get", "--prefix", PREFIX + "leader/", "--sort-by=CREATE", "--order=ASCEND", "--limit=1",
                                "-w", "json", "--command-timeout=3s")
        except (AssertionError, subprocess.TimeoutExpired):
            return None
        kvs = json.loads(text).get("kvs", [])
        return json.loads(base64.b64decode(kvs[0]["value"]))["name"] if kvs else ""

    def controller_count(self):
        """How many campaign or lead."""
        return len(self.records("leader/"))

    def member_leader(self):
        """The member that leads etcd, as those say that answer."""
        return self.member_leader_says(self.names["etcd"])

    def member_leader_says(self, members):
        for name in members:
            if not self.alive(name) or name in self.frozen:
                continue
            try:
                status = json.loads(self.etcdctl("endpoint", "status", "-w", "json", "--command-timeout=2s",
                                                 members=[name]))[0]["Status"]
            except (AssertionError, subprocess.TimeoutExpired, IndexError):
                continue
            leader = status.get("leader", 0)
            for other in self.names["etcd"]:
                if leader and self.member_id(other) == leader:
                    return other
        return None

    def restart_member(self, name):
        """Until it serves: one that is still starting is not a second member to a cluster that loses its leader."""
        self.start(name)
        until(lambda: self.serves(name), "%s to serve" % name, 90)

    def serves(self, name):
        try:
            return self.etcdctl("endpoint", "health", "--command-timeout=2s", members=[name]) is not None
        except (AssertionError, subprocess.TimeoutExpired):
            return False

    def member_id(self, name):
        if not hasattr(self, "_ids"):
            members = json.loads(self.etcdctl("member", "list", "-w", "json"))["members"]
            self._ids = {member["name"]: member["ID"] for member in members}
        return self._ids[name]

    def node_lease(self, node):
        """The id of the lease that the node's record hangs on, as hexadecimal text."""
        kvs = json.loads(self.etcdctl("get", PREFIX + "nodes/" + node, "-w", "json"))["kvs"]
        return "%x" % kvs[0]["lease"]

    # ---- sdctl, from a machine of its own ----

    def ctl_code(self, *arguments, timeout=90):
        done = subprocess.run(self.network.inside("admin") + [self.lab.path("bin/sdctl"), *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, env=dict(self.lab.environment, **self.environment))
        return done.returncode, done.stdout

    def incidents(self, since=0):
        """The incidents of generations from `since` on, oldest first."""
        found = [r for r in self.records("incidents/").values() if r["generation"] >= since]
        return sorted(found, key=lambda r: r["generation"])

    def steady(self, job, size):
        """The records, once the job runs on that many ranks, steps, all nodes are there and nothing is open."""
        r = self.records()
        name = job["name"]
        world, phase = r.get("worlds/" + name), r.get("phases/" + name, {})
        progress = r.get("progress/" + name, {})
        nodes = [r.get("nodes/" + node, {}).get("state") for node in self.names["node"]]
        if phase.get("phase") == "failed":
            raise AssertionError("%s failed: %s" % (name, phase.get("reason")))
        if not world or world["size"] != size or phase.get("phase") != "running" or set(nodes) != {"up"}:
            return None
        if phase.get("leave") or phase["generation"] != world["generation"]:
            return None
        if progress.get("generation") != world["generation"] or progress["step"] <= world["resume"]["step"]:
            return None
        ranks = [rank for key, value in r.items() if key.startswith("ranks/%s/%d/" % (name, world["generation"]))
                 for rank in value["ranks"]]
        if len(ranks) != size or any(rank["state"] != "running" or process_state(rank["pid"]) in (None, "Z", "T")
                                     for rank in ranks):
            return None  # the second: etcd has not heard yet
        if any(v["state"] == "open" for k, v in r.items() if k.startswith("incidents/")):
            return None
        return r

    # ---- the end ----

    def down(self):
        """All programs end in order; what must be gone then is checked by the caller."""
        self.recorder.stop()
        for name in sorted(self.frozen):
            self.thaw(name)
        self.network.mend()
        for kind in ("node", "controller", "etcd"):
            for name in self.names[kind]:
                if self.alive(name):
                    self.send(name, signal.SIGTERM)
            for name in self.names[kind]:
                try:
                    self.running[name].wait(90)
                except subprocess.TimeoutExpired:
                    raise AssertionError("%s does not end at SIGTERM" % name) from None

    def leftovers(self):
        """What should not be there any more, as text."""
        left = ["process %d, %s" % (pid, program) for pid, program in processes_of(self.lab.folder)]
        for where, _, names in os.walk(self.lab.folder):
            left += [os.path.join(where, name) for name in names
                     if name.startswith((".put-", ".tmp")) and "/etcd" not in where]
        for name in self.names["node"]:
            path = self.path(name, "run")
            for where, _, names in os.walk(path):
                left += ["socket " + os.path.join(where, n) for n in names if n.endswith((".sock", ".socket"))]
        return left + ["cgroup " + path for path in self.cgroups()]

    def cgroups(self):
        """The slots' cgroups, which the daemons make."""
        found = []
        with open("/proc/mounts") as file:
            mounts = [line.split()[1] for line in file if line.split()[2] == "cgroup2"]
        for path in self.bases:
            found += [os.path.join(m, path) for m in mounts if os.path.exists(os.path.join(m, path))]
        return found

    bases = ()

    def note_cgroups(self):
        """Remembers where the ranks that run now live, to ask after them at the end."""
        for pid in self.trainers():
            try:
                with open("/proc/%d/cgroup" % pid) as file:
                    path = next(line[4:].strip() for line in file if line.startswith("0::"))
            except (OSError, StopIteration):
                continue
            if "/sdtrain-" in "/" + path:
                self.bases = tuple(set(self.bases) | {os.path.dirname(path)})


def is_gone(pid):
    return process_state(pid) in (None, "Z")


__all__ = ["BIN", "CLUSTER", "LEASE_SEC", "Machines", "PREFIX", "is_gone", "until"]
