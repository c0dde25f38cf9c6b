"""A cluster as an operator has it: three hosts with our packages, etcd with mTLS and least rights, and a job."""
import json
import os
import shutil
import subprocess

import rootfs
from authority import Authority
from hosts import NETWORK, Host, Switch, sweep
from lab import TimedOut, until

CLUSTER = "test"
LEASE_SEC = 3

ETCD = """ETCD_NAME=%(name)s
ETCD_LISTEN_CLIENT_URLS=https://%(address)s:2379
ETCD_ADVERTISE_CLIENT_URLS=https://%(address)s:2379
ETCD_LISTEN_PEER_URLS=https://%(address)s:2380
ETCD_INITIAL_ADVERTISE_PEER_URLS=https://%(address)s:2380
ETCD_INITIAL_CLUSTER=%(members)s
ETCD_INITIAL_CLUSTER_STATE=new
ETCD_AUTO_COMPACTION_MODE=revision
ETCD_AUTO_COMPACTION_RETENTION=20000
ETCD_CERT_FILE=/etc/etcd/server.pem
ETCD_KEY_FILE=/etc/etcd/server.key
ETCD_TRUSTED_CA_FILE=/etc/etcd/ca.pem
ETCD_CLIENT_CERT_AUTH=true
ETCD_PEER_CERT_FILE=/etc/etcd/server.pem
ETCD_PEER_KEY_FILE=/etc/etcd/server.key
ETCD_PEER_TRUSTED_CA_FILE=/etc/etcd/ca.pem
ETCD_PEER_CLIENT_CERT_AUTH=true
"""


class Fleet:
    def __init__(self, lab, n=3, wanted=()):
        """The hosts run, and etcd on them. wanted: packages that the tree must hold."""
        sweep()
        self.lab = lab
        tree = rootfs.make(wanted)
        self.users = {who: "sdtrain-%s-%s" % (CLUSTER, who) for who in ("node", "controller", "operator")}
        self.users["root"] = "root"
        self.authority = Authority(lab.path("authority"))
        for who, name in self.users.items():
            self.authority.issue(who, name, "clientAuth")
        self.switch = Switch(lab)
        self.hosts = [Host(lab, self.switch, tree, "node%d" % i, i, self._binds()) for i in range(1, n + 1)]
        self.endpoints = ",".join("%s:2379" % host.address for host in self.hosts)
        for host in self.hosts:
            self._write_etcd(host, tree)
            host.power_on()
        for host in self.hosts:
            host.wait_booted()
        for host in self.hosts:  # a member is ready when it has met the others
            host.run("systemctl", "enable", "--quiet", "etcd.service")
            host.run("systemctl", "start", "--no-block", "etcd.service")
        for host in self.hosts:
            until(lambda: host.try_run("systemctl", "is-active", "etcd.service")[0] == 0, "etcd on " + host.name)
        text = self.etcd("root", "/opt/etcd-roles", "--enable", CLUSTER)
        self.roles = text

    def close(self):
        for host in self.hosts:
            host.close()
        self.switch.close()
        sweep()

    def _binds(self):
        """The file system that all nodes share: data to read, checkpoints to write."""
        os.makedirs(self.lab.path("checkpoints"), exist_ok=True)
        os.makedirs(self.lab.path("packages"), exist_ok=True)
        return [(self.lab.path("data"), False), (self.lab.path("packages"), False),
                (self.lab.path("unet.json"), False), (self.lab.path("checkpoints"), True)]

    def _write_etcd(self, host, tree):
        members = ",".join("%s=https://%s:2380" % (h.name, h.address) for h in self.hosts)
        host.write("/etc/default/etcd", ETCD % {"name": host.name, "address": host.address, "members": members})
        self.authority.issue(host.name, host.name, "serverAuth,clientAuth",
                             ["IP:" + host.address, "DNS:" + host.name])
        with open(tree + "/etc/passwd") as file:
            (etcd,) = [int(line.split(":")[2]) for line in file if line.startswith("etcd:")]
        for name, source, mode in (("ca.pem", "ca.pem", 0o644), ("server.pem", host.name + ".pem", 0o644),
                                   ("server.key", host.name + ".key", 0o600)):
            host.write("/etc/etcd/" + name, self.authority.text(source), mode, etcd)
        for who in self.users:
            for end in ("pem", "key"):
                host.write("/root/tls/%s.%s" % (who, end), self.authority.text("%s.%s" % (who, end)), 0o600)
        with open(os.path.join(rootfs.SOURCE, "ops/etcd-roles")) as file:
            host.write("/opt/etcd-roles", file.read(), 0o755)

    def try_etcd(self, who, *command, host=None):
        """(exit code, text) of a command that uses etcdctl, as one of the users, on a host."""
        host = host or next(h for h in self.hosts if h.leader)
        return host.try_run("env", "ETCDCTL_API=3", "ETCDCTL_CACERT=/etc/etcd/ca.pem",
                            "ETCDCTL_CERT=/root/tls/%s.pem" % who, "ETCDCTL_KEY=/root/tls/%s.key" % who,
                            "ETCDCTL_ENDPOINTS=" + self.endpoints, *command)

    def etcd(self, who, *command, host=None):
        code, text = self.try_etcd(who, *command, host=host)
        if code != 0:
            raise AssertionError("%s as %s exits %d:\n%s" % (" ".join(command), who, code, text))
        return text
