# SPDX-License-Identifier: Apache-2.0
"""A switch and hosts with addresses of their own, as network namespaces.

The switch is a bridge in a namespace that nobody else uses; each host is one more namespace, plugged in by a
pair of veths. What a host sends can be cut by address, one way or both, and its port can be pulled, so that
nobody hears of its death from the kernel. The lab's keeper removes the namespaces.
"""
import os
import shutil
import subprocess

NETWORK = "198.18.77."


def why_not():
    """Why there can be no such network here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "nft", "nsenter"):
        if not shutil.which(program):
            return "there is no program %s" % program
    name = "sdt%d-try" % os.getpid()
    tried = subprocess.run(["ip", "netns", "add", name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if tried.returncode != 0:
        return "no network namespaces: " + tried.stderr.strip()
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


def run(*command, text=None):
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError("%s exits %d: %s" % (" ".join(command), done.returncode, done.stdout))
    return done.stdout


class Network:
    def __init__(self, lab):
        self.lab, self.hosts = lab, {}
        lab.clusters += 1
        self.prefix = "sdt%d-%d" % (os.getpid(), lab.clusters)
        self.switch = self._namespace("switch")
        run("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.switch, "link", "set", "br0", "up")
        self._nft("add table bridge cut; add chain bridge cut forward { type filter hook forward priority 0; }")

    def _namespace(self, name):
        name = "%s-%s" % (self.prefix, name)
        run("ip", "netns", "add", name)
        self.lab.undo("ip", "netns", "del", name)
        return name

    def _nft(self, text):
        run("nsenter", "--net=/run/netns/" + self.switch, "nft", "-f", "-", text=text + "\n")

    def add(self, name, number):
        """Plugs a host in; its address."""
        namespace = self.hosts[name] = self._namespace(name)
        run("ip", "link", "add", "eth0", "netns", namespace, "type", "veth", "peer", "name", name, "netns", self.switch)
        run("ip", "-n", self.switch, "link", "set", name, "master", "br0", "up")
        run("ip", "-n", namespace, "addr", "add", NETWORK + "%d/24" % number, "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", namespace, "link", "set", device, "up")
        return NETWORK + str(number)

    def inside(self, name):
        """What a command begins with to run on that host; its pid is the command's own."""
        return ["nsenter", "--net=/run/netns/" + self.hosts[name]]

    def processes(self, name):
        """The pids of everything that runs there."""
        there, found = os.stat("/run/netns/" + self.hosts[name]).st_ino, []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.stat("/proc/%s/ns/net" % pid).st_ino == there:
                    found.append(int(pid))
            except OSError:
                continue  # gone meanwhile
        return found

    # ---- faults ----

    def pull(self, name):
        run("ip", "-n", self.switch, "link", "set", name, "down")

    def plug(self, name):
        run("ip", "-n", self.switch, "link", "set", name, "up")

    def cut(self, senders, receivers):
        """What these addresses send to those is lost from now on; the other way stays open."""
        self._nft("add rule bridge cut forward ip saddr { %s } ip daddr { %s } drop"
                  % (", ".join(senders), ", ".join(receivers)))

    def cut_both(self, some, others):
        self.cut(some, others)
        self.cut(others, some)

    def mend(self):
        self._nft("flush chain bridge cut forward")
