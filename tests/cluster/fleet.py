# SPDX-License-Identifier: Apache-2.0
"""A cluster as an operator has it: three hosts with our packages, etcd with mTLS and least rights, and a job."""
import json
import os
import shutil
import subprocess

import rootfs
from authority import Authority
from hosts import Host, Switch, sweep
from lab import until

CLUSTER = "test"
LEASE_SEC = 3
SHARED = "/srv/shared"
BUILD = os.path.abspath(os.environ.get("SDTRAIN_BUILD") or os.path.join(rootfs.SOURCE, "build/release"))

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


# Pages nobody, keeps no node out, and lets a test see a step: each grain takes 100 ms, at no cost of a processor.
PROGRAMS = {
    "sdtraind": {"cluster": CLUSTER, "lease_sec": LEASE_SEC, "slots": 1, "hang_floor_sec": 60, "allow_exec": True,
                 "exec_user": "sdtrain-exec",
                 "trainer_environment": ["SDTRAIN_FAULT=loop.compute=slow@*"]},
    "sdcontroller": {"cluster": CLUSTER, "lease_sec": LEASE_SEC, "max_strikes": 0}}
USER = {"sdtraind": "node", "sdcontroller": "controller"}
CONTROLLERS = 2  # hosts that have one
TRAINING_UID = 990


def build_packages(folder):
    """The .deb files of this tree, in that folder, but for what needs a GPU."""
    done = subprocess.run(["cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", folder], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    files = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".deb")
                   and not name.startswith("sdtrain-cuda_"))
    if done.returncode != 0 or not files:
        raise AssertionError("cpack exits %d:\n%s" % (done.returncode, done.stdout))
    return files


def raise_version(files, version, folder):
    """The same packages with another version, in that folder."""
    os.makedirs(folder)
    raised = []
    for file in files:
        tree = os.path.join(folder, "tree")
        subprocess.run(["dpkg-deb", "--raw-extract", file, tree], check=True)
        control = os.path.join(tree, "DEBIAN/control")
        with open(control) as text:
            lines = ["Version: %s\n" % version if line.startswith("Version:") else line for line in text]
        with open(control, "w") as text:
            text.writelines(lines)
        raised.append(os.path.join(folder, os.path.basename(file)))
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, raised[-1]], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.rmtree(tree)
    return raised


class Fleet:
    def __init__(self, lab):
        self.lab, self.hosts, self.switch, self.tree_lock = lab, [], None, None

    def up(self, n):
        """Boots the hosts, and etcd on them. Our packages are made, and not installed yet."""
        sweep(self.lab)
        lab = self.lab
        self.packages = build_packages(lab.path("packages/first"))
        ours = {rootfs.field(file, "Package") for file in self.packages}
        tree, self.tree_lock = rootfs.make({name for file in self.packages for name in rootfs.depends(file)} - ours)
        self.users = {who: "sdtrain-%s-%s" % (CLUSTER, who) for who in ("node", "controller", "operator")}
        self.users.update(root="root", person="a-person")
        self.authority = Authority(lab.path("authority"))
        for who, name in self.users.items():
            self.authority.issue(who, name, "clientAuth")
        for name in ("checkpoints", "packages"):
            os.makedirs(lab.path(name), exist_ok=True)
        os.chown(lab.path("checkpoints"), TRAINING_UID, TRAINING_UID)
        self.switch = Switch(lab)
        for i in range(1, n + 1):
            self.hosts.append(Host(lab, self.switch, tree, "node%d" % i, i, self._binds()))
        self.endpoints = ",".join("%s:2379" % host.address for host in self.hosts)
        for host in self.hosts:
            self._write_etcd(host, tree)
            self.write_settings(host)
            host.power_on()
        for host in self.hosts:
            host.wait_booted()
        for host in self.hosts:  # a member is ready when it has met the others
            host.run("systemctl", "enable", "--quiet", "etcd.service")
            host.run("systemctl", "start", "--no-block", "etcd.service")
        for host in self.hosts:
            until(lambda: host.is_active("etcd"), "etcd on " + host.name, 120, 0.1)

    def begin_service(self):
        """Installs the packages, gives everybody the least rights, and starts the services."""
        for host in self.hosts:
            self.install(host, self.packages)
        self.etcd("root", "/usr/share/sdtrain/etcd-roles", "--enable", CLUSTER)
        self.etcd("root", "/usr/share/sdtrain/etcd-roles", "--shared", CLUSTER)
        self.etcd("root", "/usr/share/sdtrain/etcd-roles", "--programs", self.users["person"], CLUSTER)
        for host in self.hosts:
            self.start(host)

    def close(self):
        for host in self.hosts:
            host.close()
        if self.switch:
            self.switch.close()
        if self.tree_lock:
            self.tree_lock.close()

    def _binds(self):
        """The file system that all nodes share: data to read, checkpoints to write."""
        return [(self.lab.path(name), self.there(self.lab.path(name)), name == "checkpoints")
                for name in ("data", "packages", "unet.json", "checkpoints")]

    def there(self, path):
        """Where the hosts see what the lab has."""
        return path.replace(self.lab.folder, SHARED)

    def here(self, path):
        return path.replace(SHARED, self.lab.folder)

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

    # ---- what an operator does ----

    def write_settings(self, host):
        """Settings and credentials, before the packages come; dpkg leaves them as they are."""
        host.write("/etc/sysusers.d/sdtrain.conf", "u sdtrain %d\n" % TRAINING_UID)
        for program in self.programs(host):
            self.configure(host, program)
            who, folder = USER[program], "/etc/sdtrain/%s.credentials/" % program
            for name, source in (("ca.pem", "ca.pem"), ("etcd.pem", who + ".pem"), ("etcd.key", who + ".key")):
                host.write(folder + name, self.authority.text(source), 0o600)

    def programs(self, host):
        return ["sdtraind"] + ["sdcontroller"] * (host.number <= CONTROLLERS)

    def configure(self, host, program, **changes):
        settings = dict(PROGRAMS[program], etcd=self.endpoints, **changes)
        for key, name in (("etcd_ca", "ca.pem"), ("etcd_cert", "etcd.pem"), ("etcd_key", "etcd.key")):
            settings[key] = "%%d/%s_%s" % (program, name)
        if program == "sdtraind":
            settings["address"] = host.address
        host.write("/etc/sdtrain/%s.json" % program, json.dumps(settings, indent=2))

    def install(self, host, files):
        """dpkg's words. Settings that are there stay."""
        wanted = [file for file in files if "controller" in self.programs(host)[-1]
                  or "controller" not in os.path.basename(file)]
        return host.run("dpkg", "--force-confold", "-i", *map(self.there, wanted), timeout=180)

    def start(self, host):
        host.run("systemctl", "enable", "--now", "--quiet", *self.programs(host), timeout=120)

    # ---- etcd ----

    def try_etcd(self, who, *command, host=None):
        """(exit code, text) of a command that uses etcdctl, as one of the users, on a host."""
        host = host or self.reachable()
        return host.try_run("env", "ETCDCTL_API=3", "ETCDCTL_CACERT=/etc/etcd/ca.pem",
                            "ETCDCTL_CERT=/root/tls/%s.pem" % who, "ETCDCTL_KEY=/root/tls/%s.key" % who,
                            "ETCDCTL_ENDPOINTS=" + self.endpoints, *command)

    def etcd(self, who, *command, host=None):
        code, text = self.try_etcd(who, *command, host=host)
        if code != 0:
            raise AssertionError("%s as %s exits %d:\n%s" % (" ".join(command), who, code, text))
        return text

    # ---- sdctl ----

    def _context(self, who):
        return {"ETCD": self.endpoints, "CLUSTER": CLUSTER, "ETCD_CA": "/etc/etcd/ca.pem",
                "ETCD_CERT": "/root/tls/%s.pem" % who, "ETCD_KEY": "/root/tls/%s.key" % who}

    def reachable(self):
        return next(host for host in self.hosts if host.leader and not host.apart)

    def try_ctl(self, *arguments, host=None, timeout=120, who="operator"):
        host = host or self.reachable()
        environment = ["SDTRAIN_%s=%s" % pair for pair in self._context(who).items()]
        return host.try_run("env", *environment, "sdctl", *arguments, timeout=timeout)

    def ctl(self, *arguments, **options):
        code, text = self.try_ctl(*arguments, **options)
        if code != 0:
            raise AssertionError("sdctl %s exits %d:\n%s\n%s" % (" ".join(arguments), code, text, self.story()))
        return text

    def status(self, job):
        return json.loads(self.ctl("job", "status", job["name"], "-o", "json"))

    def submit(self, job, who="operator"):
        with open(self.lab.path("packages", job["name"] + ".json"), "w") as file:
            file.write(self.there(json.dumps(job)))
        self.ctl("job", "start", "-f", self.there(file.name), who=who)

    def wait(self, job, wanted, timeout=90):
        self.ctl("job", "wait", job["name"], "--for", wanted, "--timeout", str(timeout), timeout=timeout + 30)

    def leader(self):
        """The host whose controller leads; None when nobody does."""
        text = self.etcd("root", "etcdctl", "get", "--prefix", "--sort-by=CREATE", "--limit=1", "--print-value-only",
                         "/sdtrain/%s/leader/" % CLUSTER)
        return next((host for host in self.hosts if host.name in text), None)

    # ---- what went wrong ----

    def story(self):
        text = self.try_ctl("cluster", "status")[1] + self.try_ctl("job", "list")[1]
        for host in self.hosts:
            if host.leader:
                text += "--- %s\n%s" % (host.name, host.try_run(
                    "journalctl", "--no-pager", "-o", "short-iso-precise", "-n", "40", "-t", "sdtraind", "-t",
                    "sdcontroller", "-t", "systemd")[1])
        return text
