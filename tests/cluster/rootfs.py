# SPDX-License-Identifier: Apache-2.0
"""The tree that every test host boots from: a small Debian with systemd, etcd and what our packages depend on.

It is made once by debootstrap from the mirror that this machine's apt uses, and kept in $SDTRAIN_ROOTFS or
build/hosts under a name that changes with what is in it. Hosts lay an overlay over it and never write to it.
"""
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess

SOURCE = os.path.abspath(os.environ.get("SDTRAIN_SOURCE") or os.path.join(os.path.dirname(__file__), "../.."))
FOLDER = os.path.abspath(os.environ.get("SDTRAIN_ROOTFS") or os.path.join(SOURCE, "build/hosts"))
PACKAGES = ["dbus", "etcd-client", "etcd-server", "iproute2", "procps", "systemd", "systemd-sysv"]

# What makes a tree into one that many hosts can boot from: no identity, no services but those that a test
# starts, and a journal that a crash does not take with it.
FINISH = r"""
set -eu
cd "$1"
: >etc/machine-id
rm -f etc/hostname etc/resolv.conf usr/sbin/policy-rc.d
mkdir -p var/log/journal
systemctl --quiet --root="$1" disable etcd.service
systemctl --quiet --root="$1" mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
    e2scrub_all.timer fstrim.timer systemd-networkd.service systemd-resolved.service getty@tty1.service \
    console-getty.service systemd-logind.service
rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/* var/log/*.log
"""


def field(package_file, name):
    """A field of a .deb's control file; "" if it has none."""
    return subprocess.run(["dpkg-deb", "-f", package_file, name], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def depends(package_file):
    """Names of the packages that a .deb needs; the first of alternatives."""
    entries = (field(package_file, "Pre-Depends") + "," + field(package_file, "Depends")).split(",")
    names = {entry.split("|")[0].split("(")[0].strip() for entry in entries}
    return sorted(names - {""})


def mirror():
    """(URL, suite) of the first distribution that apt is told of."""
    text = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)",
                           "Created-By: Packages"], check=True, text=True, stdout=subprocess.PIPE).stdout
    for line in text.splitlines():
        site, suite, component = line.split()
        if component == "main" and "-" not in suite:
            return site, suite
    raise RuntimeError("apt knows no Debian mirror; the test hosts are made from one")


def _build(tree, packages):
    site, suite = mirror()
    print("making the test hosts' tree in %s (once)" % tree, flush=True)
    shutil.rmtree(tree, ignore_errors=True)
    with open(os.path.join(FOLDER, "debootstrap.log"), "w") as log:
        subprocess.run(["debootstrap", "--variant=minbase", "--include=" + ",".join(packages), suite, tree, site],
                       check=True, stdout=log, stderr=log)
        subprocess.run(["sh", "-c", FINISH, "sh", tree], check=True, stdout=log, stderr=log)


def _remove_unused():
    """Trees of other packages, unless another run uses one."""
    for name in os.listdir(FOLDER):
        path = os.path.join(FOLDER, name)
        if not name.startswith("tree-") or not os.path.isdir(path):
            continue
        with open(path + ".lock", "w") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
            os.remove(path + ".lock")


def make(wanted):
    """(path, lock) of a tree with the wanted packages beside PACKAGES. It stays as long as the lock is open."""
    packages = sorted(set(PACKAGES) | set(wanted))
    key = hashlib.sha256(" ".join(packages + [FINISH]).encode()).hexdigest()[:12]
    os.makedirs(FOLDER, exist_ok=True)
    tree = os.path.join(FOLDER, "tree-" + key)
    with open(os.path.join(FOLDER, "lock"), "w") as building:
        fcntl.flock(building, fcntl.LOCK_EX)
        if not os.path.isdir(tree):
            _remove_unused()
            _build(os.path.join(FOLDER, "new"), packages)
            os.rename(os.path.join(FOLDER, "new"), tree)
        lock = open(tree + ".lock", "w")
        fcntl.flock(lock, fcntl.LOCK_SH)
    return tree, lock
