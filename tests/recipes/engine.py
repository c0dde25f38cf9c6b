# SPDX-License-Identifier: Apache-2.0
"""A container engine that shares nothing with this machine's own: storage and settings in a folder, and namespaces of
mounts, processes and network.

Base images are made by debootstrap, once, since no registry is asked. Builds are isolated by chroot alone; containers run
by runc, which minds neither cgroups of two versions side by side nor limits that root may not raise.

Names are answered from /run/containers by one server for all of a machine's engines. What a run that was killed left
there gave later runs two addresses for a name, one of them nobody's; so the engine has a /run/containers of its own.

A keeper, a process of its own, waits for the test's end, clears up, and removes the folder, also when the test was
killed. What runs in the namespaces dies with the keeper; then the next run finds a folder that nobody has locked.
"""
import fcntl
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.abspath(os.environ.get("SDTRAIN_SOURCE") or os.path.join(os.path.dirname(__file__), "../.."))
KEPT = os.path.join(SOURCE, "build/recipes")
BASE = "localhost/debian:12"

sys.path.insert(0, os.path.join(SOURCE, "tests/cluster"))
import rootfs  # noqa: E402

PREFIX = os.path.join(SOURCE, "build", "sdtrain-containers-")
# The first process of the namespaces; it reaps what loses its parent.
FIRST = """set -e
ip link set lo up
for name in containers libpod runc netns; do
    mkdir -p /run/$name
    mount -t tmpfs engine /run/$name
done
echo ready
while :; do sleep 3600 & wait $!; done
"""
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")

CONTAINERS = """[containers]
default_ulimits = ["nofile=16384:16384", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "%s/networks"
default_subnet = "10.213.0.0/24"
default_subnet_pools = [{base = "10.214.0.0/16", size = 24}]
"""
STORAGE = """[storage]
driver = "overlay"
graphroot = "%s/graph"
runroot = "%s/run"
"""


def why_not():
    """What this machine lacks; None if nothing."""
    if os.geteuid() != 0:
        return "containers need root here"
    for program in ("podman", "podman-compose", "buildah", "runc", "debootstrap", "cpack", "nsenter", "setpriv"):
        if not shutil.which(program):
            return "containers need %s (ops/packages recipes)" % program
    return None


def base_archive():
    """A tar of a bare Debian 12, made once."""
    os.makedirs(KEPT, exist_ok=True)
    path = os.path.join(KEPT, "debian.tar")
    with open(os.path.join(KEPT, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            site, suite = rootfs.mirror()
            tree = os.path.join(KEPT, "new")
            print("making the base image (once)", flush=True)
            shutil.rmtree(tree, ignore_errors=True)
            with open(os.path.join(KEPT, "debootstrap.log"), "w") as log:
                def run(*words):
                    subprocess.run(words, check=True, stdout=log, stderr=log)
                # What it mounts and starts goes with it.
                run("setpriv", "--pdeathsig", "KILL", *UNSHARE, "debootstrap", "--variant=minbase", suite, tree, site)
                run("tar", "-C", tree, "-cf", path + ".tmp", ".")
            os.rename(path + ".tmp", path)
            shutil.rmtree(tree)
    return path


def lock(folder):
    """A descriptor with the folder's lock; None: somebody holds it. The folder may be gone by then."""
    os.makedirs(folder, exist_ok=True)
    file = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def remove_left_over(patience=300):
    """What runs before this one left. A keeper that still clears up is waited for: two engines would take one network."""
    end = time.monotonic() + patience
    for folder in glob.glob(PREFIX + "*"):
        while (held := lock(folder)) is None:
            if time.monotonic() > end:
                raise RuntimeError("another run of this test uses " + folder)
            time.sleep(0.1)
        print("removing what an earlier run left in " + folder, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)
        if os.path.exists(folder):
            raise RuntimeError(folder + " cannot be removed")


class Engine:
    """That of a folder. make() makes both, with a keeper."""

    def __init__(self, folder):
        self.folder, self.pipe, self.keeper, self.first = folder, None, None, None
        os.makedirs(os.path.join(folder, "networks"), exist_ok=True)
        for name, text in (("containers.conf", CONTAINERS % folder), ("storage.conf", STORAGE % (folder, folder))):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        self.environment = dict(os.environ, CONTAINERS_CONF=os.path.join(folder, "containers.conf"),
                                CONTAINERS_STORAGE_CONF=os.path.join(folder, "storage.conf"))

    @classmethod
    def make(cls):
        remove_left_over()
        os.makedirs(os.path.dirname(PREFIX), exist_ok=True)
        folder = tempfile.mkdtemp(prefix=os.path.basename(PREFIX), dir=os.path.dirname(PREFIX))
        held, engine = lock(folder), cls(folder)
        pipe, engine.pipe = os.pipe()
        told, tell = os.pipe()
        sys.stdout.flush()
        engine.keeper = os.fork()
        if engine.keeper == 0:
            os.close(engine.pipe)
            try:
                engine._keep(pipe, tell)
            finally:
                os._exit(0)
        for number in (pipe, tell, held):  # the keeper's alone now
            os.close(number)
        engine.first = os.read(told, 32).decode()
        os.close(told)
        if not engine.first:
            engine.close()
            raise RuntimeError("the engine's namespaces could not be made")
        return engine

    def _keep(self, pipe, tell):
        """The keeper's life: until the test's end of the pipe is closed, by will or by death."""
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *UNSHARE, "--net", "sh", "-c", FIRST],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            if holder.stdout.readline() == b"ready\n":
                with open("/proc/%d/task/%d/children" % (holder.pid, holder.pid)) as file:
                    self.first = file.read().split()[0]
                os.write(tell, self.first.encode())
                os.close(tell)
                os.read(pipe, 1)
                # What makes cgroups takes them away; all else goes with the namespaces.
                self.podman("rm", "-f", "-a", "-t", "0", timeout=120, check=False)
        finally:
            holder.kill()
            holder.communicate()
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self):
        os.close(self.pipe)
        os.waitpid(self.keeper, 0)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def run(self, *words, timeout=600, check=True, outside=False, **environment):
        """Output and errors together, or (exit code, both) with check=False. outside: on this machine's network."""
        enter = ["nsenter", "--target", self.first, "--mount", "--pid", *([] if outside else ["--net"]), "--"]
        done = subprocess.run([*enter, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=timeout, stdin=subprocess.DEVNULL, env=dict(self.environment, **environment))
        if check and done.returncode != 0:
            raise AssertionError("%s exits %d:\n%s" % (" ".join(words), done.returncode, done.stdout[-4000:]))
        return done.stdout if check else (done.returncode, done.stdout)

    def podman(self, *words, **more):
        return self.run("podman", *words, **more)

    def import_base(self):
        self.podman("import", "-q", base_archive(), BASE)

    def build(self, tag, containerfile, context):
        self.run("buildah", "bud", "--isolation", "chroot", "--build-arg", "BASE=" + BASE, "-t", tag, "-f", containerfile,
                 context, timeout=1800, outside=True)
