# SPDX-License-Identifier: Apache-2.0
"""Machines for tests: systemd in containers, each with its own disk, address and cgroup tree, on a switch of their own.

A host is a systemd-nspawn container over an overlay of the common tree (rootfs.py). Its disk outlives its boots, so
that a reboot or a power loss means what it does on a machine. The network is network namespaces, held by processes
that do nothing else: there is nothing by name to clear away, and nothing reaches the machine's own network.

The lab's keeper ends what a killed test leaves (tests/system/lab.py): network namespaces by their holders, hosts by their
cgroups. What is left of a lab whose keeper was killed, too, the next run ends.
"""
import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time

from lab import TimedOut, until

NETWORK = "198.18.77."  # of the range for benchmarks, which nobody routes
CGROUP_PREFIX = "sdtrain-host-"

# In a mount namespace of its own, with a pure cgroup2 whatever this machine has, the machine boots.
BOOT = r"""
set -eu
mount --make-rprivate /
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p "/sys/fs/cgroup/$CGROUP"
echo $$ >"/sys/fs/cgroup/$CGROUP/cgroup.procs"
mount -t overlay -o "lowerdir=$TREE,upperdir=$DISK/upper,workdir=$DISK/work,index=off" overlay "$DISK/root"
exec systemd-nspawn --quiet --register=no --keep-unit --settings=no --console=pipe --boot --directory="$DISK/root" \
    --link-journal=no --resolv-conf=off --timezone=off --tmpfs=/tmp \
    --capability=CAP_SYSLOG --system-call-filter="adjtimex clock_adjtime" "$@"
"""

# With all cgroups of this machine in sight: the script behind it.
CGROUPS = "mount --make-rprivate / && umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && "

# Ends what runs in the cgroups whose names begin so, and removes them.
END = CGROUPS + r"""cd /sys/fs/cgroup
for folder in "$1"*; do
    [ -d "$folder" ] || continue
    echo 1 >"$folder/cgroup.kill"
    for i in $(seq 200); do
        find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null && break
        sleep 0.05
    done
done
"""


def _unshared(script, *arguments):
    return ["unshare", "-m", "sh", "-c", script, "sh", *arguments]


def why_not():
    """What this machine lacks to run test hosts; None if nothing."""
    if os.geteuid() != 0:
        return "test hosts need root"
    for program in ("systemd-nspawn", "debootstrap", "nsenter", "ip", "nft", "openssl"):
        if not shutil.which(program):
            return "test hosts need %s (ops/packages cluster)" % program
    tried = subprocess.run(_unshared(CGROUPS + "mkdir /sys/fs/cgroup/%stry.$$ && rmdir /sys/fs/cgroup/%stry.$$" %
                                     (CGROUP_PREFIX, CGROUP_PREFIX)),
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return None if tried.returncode == 0 else "test hosts need namespaces and cgroup2: " + tried.stderr.strip()


def cgroup_prefix(lab):
    return "%s%s-" % (CGROUP_PREFIX, os.path.basename(lab.folder))


def _is_over(folder):
    """No process holds that lab's lock."""
    try:
        with open(folder + "/hosts.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    return True


def sweep(lab):
    """Ends the hosts of labs that are over; and sees to it that this lab's end is theirs, too."""
    names = subprocess.run(_unshared(CGROUPS + "ls /sys/fs/cgroup"), check=True, stdout=subprocess.PIPE,
                           text=True).stdout.split()
    for name in names:
        found = re.match(CGROUP_PREFIX + "(.*)-[^-]*$", name)
        folder = found and os.path.join(os.path.dirname(lab.folder), found.group(1))
        if folder and _is_over(folder):
            subprocess.run(_unshared(END, name), check=True)
            shutil.rmtree(folder, ignore_errors=True)
    lab.lock = open(lab.path("hosts.lock"), "w")  # until this process ends
    fcntl.flock(lab.lock, fcntl.LOCK_EX)
    lab.undo(*_unshared(END, cgroup_prefix(lab)))


def _die_with_parent():
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Namespace:
    """A network namespace, as long as its holder lives."""

    def __init__(self, environment):
        self.holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"], env=environment,
                                       stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)
        self.path = "/proc/%d/ns/net" % self.holder.pid
        own = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(self.path) != own, "a network namespace")

    def run(self, *command, **options):
        return subprocess.run(["nsenter", "--net=" + self.path, *command], check=True, stdin=subprocess.DEVNULL,
                              **options)

    def close(self):
        self.holder.kill()
        self.holder.wait()


class Switch:
    """What all hosts are plugged into."""

    def __init__(self, lab):
        self.net = Namespace(lab.environment)
        self.net.run("ip", "link", "add", "switch", "type", "bridge")
        self.net.run("ip", "link", "set", "switch", "up")

    def plug(self, net, number):
        port = "port%d" % number
        self.net.run("ip", "link", "add", port, "type", "veth", "peer", "name", "host0", "netns",
                     str(net.holder.pid))
        self.net.run("ip", "link", "set", port, "master", "switch", "up")
        net.run("ip", "address", "add", "%s%d/24" % (NETWORK, number), "dev", "host0")
        net.run("ip", "link", "set", "host0", "up")
        net.run("ip", "link", "set", "lo", "up")

    def set_port(self, number, state):
        self.net.run("ip", "link", "set", "port%d" % number, state)

    def close(self):
        self.net.close()


class Host:
    def __init__(self, lab, switch, tree, name, number, binds=()):
        """binds: (path here, path there, writable)"""
        self.lab, self.switch, self.tree = lab, switch, tree
        self.name, self.number, self.binds = name, number, binds
        self.address = "%s%d" % (NETWORK, number)
        self.nspawn = self.leader = None
        self.apart = False  # frozen or cut off: no place to ask from
        self.disk = lab.path("hosts", name)
        self.cgroup = cgroup_prefix(lab) + name
        self.machine_id = hashlib.sha256(self.cgroup.encode()).hexdigest()[:32]
        for part in ("upper/etc", "work", "root"):
            os.makedirs(os.path.join(self.disk, part))
        self.write("/etc/machine-id", self.machine_id + "\n")
        self.write("/etc/hostname", name + "\n")
        self.net = Namespace(lab.environment)
        switch.plug(self.net, number)

    def write(self, path, text, mode=0o644, owner=0):
        """A file on the host's disk, whether it runs or not."""
        path = (self.disk + "/upper" if self.leader is None else "/proc/%d/root" % self.leader) + path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        os.chown(path, owner, owner)

    # ---- power ----

    def power_on(self):
        """Begins to boot; wait_booted() waits for the end of it."""
        self.switch.set_port(self.number, "up")
        arguments = ["--machine=" + self.name, "--uuid=" + self.machine_id, "--network-namespace-path=" + self.net.path]
        arguments += ["--bind%s=%s:%s" % ("" if writable else "-ro", here, there) for here, there, writable in self.binds]
        environment = dict(self.lab.environment, CGROUP=self.cgroup, TREE=self.tree, DISK=self.disk)
        with open(self.disk + "/console", "ab") as console:
            self.nspawn = subprocess.Popen(["unshare", "-m", "sh", "-c", BOOT, "sh", *arguments], env=environment,
                                           stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                                           preexec_fn=_die_with_parent)

    def _find_leader(self):
        if self.nspawn.poll() is not None:
            with open(self.disk + "/console", errors="replace") as file:
                raise AssertionError("%s does not boot: %s" % (self.name, file.read()[-2000:]))
        with open("/proc/%d/task/%d/children" % (self.nspawn.pid, self.nspawn.pid)) as file:
            children = file.read().split()
        for pid in children:
            try:
                with open("/proc/%s/comm" % pid) as file:
                    if file.read().strip() == "systemd":
                        return int(pid)
            except OSError:
                pass
        return None

    def wait_booted(self, timeout=120):
        self.leader = until(self._find_leader, "%s has a PID 1" % self.name, timeout)
        end = time.monotonic() + timeout
        while True:  # systemd's socket is there a moment after its PID 1
            code, text = self.try_run("systemctl", "is-system-running", "--wait", timeout=timeout)
            if text.strip() in ("running", "degraded"):
                return
            if time.monotonic() > end:
                raise TimedOut("%s has not booted within %d s: %d %s" % (self.name, timeout, code, text))
            time.sleep(0.05)

    def power_loss(self):
        """Silence, then nothing: no FIN, no last word, no more writes."""
        self.switch.set_port(self.number, "down")
        self.kill_init()

    def kill_init(self):
        """PID 1 dies, and the kernel with it; peers get a FIN or RST."""
        os.kill(self.leader, signal.SIGKILL)
        self._ended()

    def reboot(self):
        """As an operator does it, waiting for the services' own ends."""
        self.try_run("systemctl", "reboot")
        self._ended(timeout=180)
        self.power_on()
        self.wait_booted()

    def set_right(self):
        """Thawed, heard by the others, and up, whatever a test has done to it."""
        if self.nspawn is None:
            self.power_on()
        if self.leader is None:
            self.wait_booted()
        if self.apart:
            self.freeze(False)
            self.heal()
        self.try_run("systemctl", "reset-failed")

    def _ended(self, timeout=60):
        self.nspawn.wait(timeout)
        self.nspawn = self.leader = None

    def freeze(self, frozen=True):
        """The whole machine stands still, or goes on."""
        subprocess.run(["nsenter", "-t", str(self.nspawn.pid), "-m", "sh", "-c",
                        "echo %d >/sys/fs/cgroup/%s/cgroup.freeze" % (frozen, self.cgroup)], check=True)
        self.apart = frozen

    def close(self):
        if self.nspawn and self.nspawn.poll() is None:
            leader = self.leader or self._find_leader()
            if leader:
                os.kill(leader, signal.SIGKILL)
            else:
                self.nspawn.kill()
            self.nspawn.wait()
        self.net.close()

    # ---- the network ----

    def cut(self, others, outgoing=True, incoming=True):
        """Packets to or from the other hosts are dropped."""
        addresses = "{ %s }" % ", ".join(other.address for other in others)
        rules = ["table inet cut {", "chain in { type filter hook input priority 0;",
                 "ip saddr %s drop;" % addresses if incoming else "", "}",
                 "chain out { type filter hook output priority 0;",
                 "ip daddr %s drop;" % addresses if outgoing else "", "}", "}"]
        self.net.run("nft", "\n".join(rules))
        self.apart = True

    def heal(self):
        self.net.run("nft", "flush ruleset")
        self.apart = False

    # ---- inside ----

    def try_run(self, *command, timeout=60, text=True):
        """(exit code, output and errors) of a command on the host."""
        done = subprocess.run(["nsenter", "-t", str(self.leader), "-a", "env", "-i",
                               "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
                               "LANG=C.UTF-8", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0", "COLUMNS=200", *command],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              text=text, errors="replace", timeout=timeout, start_new_session=True)
        return done.returncode, done.stdout

    def run(self, *command, timeout=60):
        code, text = self.try_run(*command, timeout=timeout)
        if code != 0:
            last = self.try_run("journalctl", "--no-pager", "-o", "short-precise", "-n", "12")[1]
            raise AssertionError("%s: %s exits %d:\n%s\n%s" % (self.name, " ".join(command), code, text, last))
        return text

    def show(self, unit, name):
        """A property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", name, unit).strip()

    def is_active(self, unit):
        return self.try_run("systemctl", "is-active", unit)[1].strip() == "active"

    def main_pid(self, unit):
        """As the host counts; 0 if it does not run."""
        return int(self.show(unit, "MainPID"))

    def processes(self, unit):
        """{pid: (program, path in the unit's cgroup)} of what runs in the unit's cgroup."""
        found = {}
        own = self.show(unit, "ControlGroup")
        if not own:
            return found  # it does not run
        top = "/sys/fs/cgroup" + own
        code, text = self.try_run("find", top, "-name", "cgroup.procs", "-exec", "grep", "-H", ".", "{}", "+")
        for line in text.splitlines() if code == 0 else []:
            path, _, pid = line.partition(":")
            program = self.try_run("readlink", "/proc/%s/exe" % pid)[1].strip().removesuffix(" (deleted)")
            found[int(pid)] = (os.path.basename(program), os.path.dirname(path)[len(top):])
        return found
