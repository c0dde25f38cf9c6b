# SPDX-License-Identifier: Apache-2.0
"""A container engine that shares nothing with this machine's own: storage, networks and settings in a folder.

Base images are made by debootstrap, once, since no registry is asked. Builds are isolated by chroot alone; containers run
by runc, which minds neither cgroups of two versions side by side nor limits that root may not raise.
"""
import fcntl
import os
import shutil
import subprocess
import sys

SOURCE = os.path.abspath(os.environ.get("SDTRAIN_SOURCE") or os.path.join(os.path.dirname(__file__), "../.."))
KEPT = os.path.join(SOURCE, "build/recipes")
BASE = "localhost/debian:12"

sys.path.insert(0, os.path.join(SOURCE, "tests/cluster"))
import rootfs  # noqa: E402

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
    for program in ("podman", "podman-compose", "buildah", "runc", "debootstrap", "cpack"):
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
                subprocess.run(["debootstrap", "--variant=minbase", suite, tree, site], check=True, stdout=log, stderr=log)
                subprocess.run(["tar", "-C", tree, "-cf", path + ".tmp", "."], check=True, stdout=log, stderr=log)
            os.rename(path + ".tmp", path)
            shutil.rmtree(tree)
    return path


class Engine:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(os.path.join(folder, "networks"))
        for name, text in (("containers.conf", CONTAINERS % folder), ("storage.conf", STORAGE % (folder, folder))):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        self.environment = dict(os.environ, CONTAINERS_CONF=os.path.join(folder, "containers.conf"),
                                CONTAINERS_STORAGE_CONF=os.path.join(folder, "storage.conf"))

    def run(self, *words, timeout=600, check=True, **environment):
        """Output and errors together, or (exit code, both) with check=False."""
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
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
                 context, timeout=1800)

    def close(self):
        self.podman("rm", "-f", "-a", "-t", "0", check=False)
        for name in self.podman("network", "ls", "-q", check=False)[1].split():
            self.podman("network", "rm", "-f", name, check=False)
        self.podman("rmi", "-a", "-f", check=False)
