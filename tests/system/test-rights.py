#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rights in etcd: a cluster behind mTLS, each node with rights of its own, made and taken away while a job trains.

SDTRAIN_CHAOS_FULL=1 makes 1,000 nodes' users meanwhile; else 20."""
import json
import os
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))

from authority import Authority
from lab import BIN, SOURCE, LabCase, until
from sink import Sink

CLUSTER = "prod"
NODES_MADE = 1000 if os.environ.get("SDTRAIN_CHAOS_FULL") else 20


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Rights(LabCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lab, cls.processes = cls.lab, {}
        cls.addClassCleanup(os.chdir, os.getcwd())
        os.chdir(lab.folder)  # of the daemons, too: sdctl, elsewhere, finds no logs there and must ask for them
        cls.addClassCleanup(lambda: [cls.stop(name) for name in list(cls.processes)])
        cls.authority = Authority(lab.path("authority"))
        cls.authority.issue("etcd", "etcd", "serverAuth,clientAuth", ["IP:127.0.0.1"])
        for name, user in (("root", "root"), ("controller", "sdtrain-prod-controller"), ("shared", "sdtrain-prod-node"),
                           ("operator", "sdtrain-prod-operator"), ("node1", "sdtrain-prod-node-node1"),
                           ("node2", "sdtrain-prod-node-node2"), ("anna", "anna")):
            cls.authority.issue(name, user, "clientAuth")
        cls.endpoint = "127.0.0.1:%d" % free_port()
        peer = "http://127.0.0.1:%d" % free_port()
        path = cls.authority.path
        cls.begin("etcd", "etcd", "--name", "a", "--data-dir", lab.path("etcd-data"), "--listen-client-urls",
                  "https://" + cls.endpoint, "--advertise-client-urls", "https://" + cls.endpoint, "--listen-peer-urls", peer,
                  "--initial-advertise-peer-urls", peer, "--initial-cluster", "a=" + peer, "--client-cert-auth",
                  "--trusted-ca-file", path("ca.pem"), "--cert-file", path("etcd.pem"), "--key-file", path("etcd.key"),
                  "--unsafe-no-fsync")
        until(lambda: cls.etcdctl("root", "endpoint", "health")[0] == 0, "etcd's health")
        if "sdtrain-prod-node" in cls.roles("--enable"):
            raise AssertionError("a shared user that nobody has asked for")
        made = cls.roles("--shared")
        if "--retire-shared" not in made:
            raise AssertionError(made)
        cls.roles("--node", "node1")
        cls.daemon("sdcontroller", "controller", "controller", name="c1", lease_sec=4)
        cls.node("node1", "node1")
        cls.node("node2", "shared")

    @classmethod
    def begin(cls, name, *command):
        with open(cls.lab.path(name + ".log"), "a") as log:
            cls.processes[name] = subprocess.Popen(command, env=cls.lab.environment, stdout=log, stderr=log,
                                                   stdin=subprocess.DEVNULL)

    @classmethod
    def stop(cls, name):
        process = cls.processes.pop(name)
        process.terminate()
        process.wait(60)

    @classmethod
    def as_user(cls, user):
        path = cls.authority.path
        return {"etcd": cls.endpoint, "etcd_ca": path("ca.pem"), "etcd_cert": path(user + ".pem"),
                "etcd_key": path(user + ".key")}

    @classmethod
    def daemon(cls, program, called, user, **settings):
        settings = dict(cls.as_user(user), cluster=CLUSTER, **settings)
        config = cls.lab.write("%s.json" % called, json.dumps(settings))
        cls.begin(called, os.path.join(BIN, program), "--config", config)

    @classmethod
    def node(cls, name, user):
        cls.daemon("sdtraind", name, user, node=name, address="127.0.0.1", run_dir=cls.lab.path(name, "run"),
                   log_dir="/proc/self/cwd/%s/logs" % name, machine_id="%032x" % int(name[-1]), hang_floor_sec=60, lease_sec=4,
                   kernel_log="off", drain_sec=1, allow_exec=True)

    @classmethod
    def etcdctl(cls, user, *arguments, stdin=None):
        path = cls.authority.path
        done = subprocess.run(["etcdctl", *arguments], env=dict(
            os.environ, ETCDCTL_API="3", ETCDCTL_ENDPOINTS="https://" + cls.endpoint, ETCDCTL_CACERT=path("ca.pem"),
            ETCDCTL_CERT=path(user + ".pem"), ETCDCTL_KEY=path(user + ".key")), input=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=60)
        return done.returncode, done.stdout

    @classmethod
    def roles(cls, *arguments, stdin="", fails=False):
        path = cls.authority.path
        done = subprocess.run([os.path.join(SOURCE, "ops/etcd-roles"), *arguments, CLUSTER], env=dict(
            os.environ, ETCDCTL_ENDPOINTS="https://" + cls.endpoint, ETCDCTL_CACERT=path("ca.pem"),
            ETCDCTL_CERT=path("root.pem"), ETCDCTL_KEY=path("root.key")), input=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=1200)
        if (done.returncode != 0) != fails:
            raise AssertionError("etcd-roles %s: %d\n%s" % (" ".join(arguments), done.returncode, done.stdout))
        return done.stdout

    def ctl(self, *arguments, code=0, user="operator"):
        names = {"etcd": "SDTRAIN_ETCD", "etcd_ca": "SDTRAIN_ETCD_CA", "etcd_cert": "SDTRAIN_ETCD_CERT",
                 "etcd_key": "SDTRAIN_ETCD_KEY"}
        environment = {names[key]: value for key, value in self.as_user(user).items()}
        done = subprocess.run([self.lab.path("bin/sdctl"), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=300, cwd="/",
                              env=dict(self.lab.environment, SDTRAIN_CLUSTER=CLUSTER, **environment))
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def denied(self, user, *arguments):
        code, text = self.etcdctl(user, *arguments)
        self.assertIn("permission denied", text)
        self.assertNotEqual(code, 0)

    def nodes(self):
        return {line.split()[0]: line for line in self.ctl("node", "list").splitlines() if line.startswith("node")}

    def log(self, name):
        with open(self.lab.path(name + ".log")) as file:
            return file.read()

    def wrong(self):
        return json.loads(self.ctl("cluster", "status", "-o", "json"))["wrong"]

    def test_programs(self):
        """Who lacks the right can neither submit, change nor swap a command."""
        until(lambda: all("programs" in json.loads(self.etcdctl("root", "get", "--print-value-only", "/sdtrain/prod/nodes/" + n)[1])
                          ["features"] for n in ("node1", "node2")), "nodes that may read programs")
        folder = self.lab.path("programs")
        os.makedirs(folder)

        def job(command):
            return {"name": "prog", "kind": "exec", "world": {"min": 1, "max": 1}, "recovery": {"max_failures_at_same_step": 1},
                    "exec": {"command": ["sh", "-c", command], "dir": folder}}
        file = self.lab.job_file(job("test -e may && touch ours"))
        text = self.ctl("job", "start", "-f", file, code=1)
        self.assertIn("etcd permits this user only with etcd-roles --programs", text)
        key = "/sdtrain/prod/programs/prog"
        for user in ("operator", "controller", "shared", "node1", "anna"):
            self.denied(user, "put", key, "{}")
        self.denied("node1", "put", "/sdtrain/prod/specs/prog", "{}")
        self.roles("--programs", "root", fails=True)
        self.assertIn("anna: as sdtrain-prod-operator", self.roles("--programs", "anna"))
        self.roles()  # again: takes nothing away
        self.ctl("job", "start", "-f", file, user="anna")
        self.ctl("job", "wait", "prog", "--for", "failed", "--timeout", "60")
        # An operator may write the spec. The nodes do not look at its command.
        spec = json.loads(self.etcdctl("operator", "get", "--print-value-only", "/sdtrain/prod/specs/prog")[1])
        spec["spec"] = json.dumps(job("touch theirs"))
        self.assertEqual(self.etcdctl("operator", "put", "/sdtrain/prod/specs/prog", stdin=json.dumps(spec))[0], 0)
        self.lab.write("programs/may", "")
        self.ctl("job", "start", "prog")
        self.ctl("job", "wait", "prog", "--for", "succeeded", "--timeout", "60")
        self.assertEqual(sorted(os.listdir(folder)), ["may", "ours"])
        self.assertIn("programs/prog stays", self.ctl("job", "delete", "prog"))
        self.evaluates(folder)
        self.roles("--retire-programs", "anna")
        self.denied("anna", "put", key, "{}")
        self.assertEqual(self.etcdctl("anna", "get", "/sdtrain/prod/specs/none")[0], 0)

    def evaluates(self, folder):
        """Nodes may write results of evaluations, which the controller removes; operators read them, and write none."""
        say = {"SAY": os.path.join(os.environ["SDTRAIN_BIN"], "sdtrain-exec")}
        train = {"name": "train", "kind": "exec", "world": {"min": 1, "max": 1}, "checkpoint": {"uri": folder},
                 "exec": {"command": ["sh", "-c", "$$SAY say STEP=1 CHECKPOINT=%s/c; while ! test -e go; do sleep 0.02; done" % folder],
                          "dir": folder, "env": say}}
        evaluation = {"name": "fid", "kind": "eval", "of": {"job": "train"}, "world": {"min": 1, "max": 1},
                      "checkpoint": {"uri": folder}, "exec": {"command": ["sh", "-c", "$$SAY say RESULT=fid=12.5"], "dir": folder, "env": say}}
        for job in (train, evaluation):
            self.ctl("job", "start", "-f", self.lab.job_file(job), user="anna")
        until(lambda: [e["verdict"] for e in json.loads(self.ctl("job", "evals", "fid", "-o", "json"))] == ["done"], "an evaluation")
        self.assertEqual(json.loads(self.ctl("job", "evals", "fid", "-o", "json"))[0]["numbers"], {"fid": 12.5})
        self.denied("operator", "put", "/sdtrain/prod/evals/fid/1", "{}")
        self.lab.write("programs/go", "")
        self.ctl("job", "wait", "fid", "--for", "succeeded", "--timeout", "60")
        for name in ("fid", "train"):
            self.ctl("job", "delete", name)
        until(lambda: "evals" not in self.etcdctl("root", "get", "--prefix", "--keys-only", "/sdtrain/prod/evals/")[1], "no results")

    def test_an_operators_context(self):
        """A context names all that an operator's sdctl needs, and doctor says that the role suffices."""
        context = dict(self.as_user("operator"), cluster=CLUSTER)
        file = self.lab.write("home/sdtrain/sdctl.json", json.dumps({"contexts": {"prod": context}}))
        environment = dict(self.lab.environment, XDG_CONFIG_HOME=self.lab.path("home"))
        until(lambda: len(self.nodes()) == 2, "both nodes")

        def doctor():
            return subprocess.run([self.lab.path("bin/sdctl"), "doctor", "--context", "prod"], env=environment,
                                  capture_output=True, text=True, timeout=300)
        done = until(lambda: (lambda d: d if d.returncode == 0 else None)(doctor()), "a cluster that is well")
        self.assertIn("authentication is on, and this user may do what an operator does", done.stdout)
        self.assertIn("node1, node2: ranks run as", done.stdout)
        os.chmod(self.authority.path("operator.key"), 0o644)
        refused = doctor()
        os.chmod(self.authority.path("operator.key"), 0o600)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("%s: contexts.prod.etcd_key: " % file, refused.stderr)
        self.assertIn("wrong rights: everybody may read it", refused.stderr)

    def test_kinds_that_the_role_lacks(self):
        """What came later than the role is left out, and said; a job that fails, recovers and ends needs none of it."""
        role, lacking = "sdtrain-prod-controller", ("alerts", "secrets")
        prefixes = {"alerts": "/sdtrain/prod/alerts/", "secrets": "/sdtrain-secrets/prod/"}
        until(lambda: len(self.nodes()) == 2, "both nodes")
        self.assertEqual(self.wrong(), [])
        sink = Sink()
        self.addCleanup(sink.close)
        alerts = self.lab.write("alerts.json", json.dumps({"sinks": [
            {"name": "hook", "kind": "webhook", "url": sink.url + "/hook", "least": "info"}]}))
        for kind in lacking:
            code, text = self.etcdctl("root", "role", "revoke-permission", "--prefix", role, prefixes[kind])
            self.assertEqual(code, 0, text)
        self.stop("controller")
        self.daemon("sdcontroller", "controller", "controller", name="c1", lease_sec=4, incidents_kept=1, alerts_file=alerts)
        until(lambda: len(self.wrong()) == 2 or None, "what the leader may not")
        for kind, text in zip(lacking, self.wrong()):
            self.assertIn("the leader may not write %s in etcd and leaves them out" % kind, text)
            self.assertIn("this controller may not write " + kind, self.log("controller"))

        job = self.lab.job("without", train__steps=100000, checkpoint__every_steps=20, world__min=2,
                           recovery={"grow_interval_s": 0})
        self.ctl("job", "start", "-f", self.lab.job_file(job))
        for generation in (1, 2, 3):
            self.ctl("job", "wait", "without", "--for", "running", "--timeout", "120")
            until(lambda: json.loads(self.ctl("job", "status", "without", "-o", "json"))["generation"] == generation,
                  "generation %d" % generation)
            if generation < 3:
                status = until(lambda: (lambda s: s if s["world"]["ranks"] and s["world"]["ranks"][0]["pid"] else None)(
                    json.loads(self.ctl("job", "status", "without", "-o", "json"))), "its ranks")
                os.kill(status["world"]["ranks"][0]["pid"], signal.SIGKILL)
        kept = lambda kind: self.etcdctl("root", "get", "--prefix", "--keys-only", "/sdtrain/prod/%s/" % kind)[1].split()
        until(lambda: len(kept("incidents")) == 1, "the older incident's removal, which takes its alert with it")
        self.assertEqual(kept("alerts"), [])
        self.assertEqual(sink.requests, [])
        self.assertEqual(self.etcdctl("root", "get", "--prefix", "/sdtrain-secrets/")[1], "")
        # The role is brought up to date: nothing has to be started again.
        self.roles()
        until(lambda: self.wrong() == [], "the leader's next look")
        sink.wait(lambda: sink.requests, "the page that waited")
        self.ctl("job", "stop", "without")
        self.ctl("job", "wait", "without", "--for", "stopped", "--timeout", "120")
        self.ctl("job", "delete", "without")

    def test_names_that_meet(self):
        """sdtrain-x-node-controller would be a node's user of cluster x, and the controller's of x-node: both names are refused
        before anything is asked of etcd, also where a user would be taken away."""
        before = self.etcdctl("root", "user", "list")
        for arguments, word in ((["x-node"], '"x-node"'), (["x-node-a"], '"x-node-a"'), (["--enable", "a.b-node"], '"a.b-node"'),
                                (["--node", "a", "controller", "x"], "a node named controller"), (["--node", "node", "x"], "named node"),
                                (["--node", "operator", "x"], "named operator"), (["--retire", "ranks", "x"], "named ranks")):
            done = subprocess.run([os.path.join(SOURCE, "ops/etcd-roles"), *arguments], env=dict(os.environ, PATH=self.no_etcdctl()),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(word, done.stdout)
        self.assertEqual(self.etcdctl("root", "user", "list"), before)

    def no_etcdctl(self):
        """A PATH whose etcdctl fails: nobody is to call it."""
        self.lab.write("none/etcdctl", "#!/bin/sh\nexit 9\n")
        os.chmod(self.lab.path("none/etcdctl"), 0o755)
        return self.lab.path("none") + ":" + os.environ["PATH"]

    def test_rights(self):
        records = "/sdtrain/prod/"
        until(lambda: len(self.nodes()) == 2, "both nodes")
        # A node with a user of its own writes its own record and health, and nobody else's.
        for key in ("nodes/node2", "health/node2", "nodes/node10", "specs/a", "cordons/node1", "worlds/a", "desired/a"):
            self.denied("node1", "put", records + key, "{}")
        # It reads what is asked of its own logs, and answers for itself alone; operators ask and do not answer.
        asks, lines = "/sdtrain-logs/prod/asks/", "/sdtrain-logs/prod/lines/"
        for user, words in (("node1", ("get", asks + "node2/x")), ("node1", ("get", "--prefix", asks)),
                            ("node1", ("put", asks + "node1/x", "{}")), ("node1", ("put", lines + "node2/x", "{}")),
                            ("node1", ("get", lines + "node2/x")), ("node1", ("get", lines + "node10/x")),
                            ("shared", ("put", asks + "node2/x", "{}")), ("operator", ("put", lines + "node1/x", "{}")),
                            ("controller", ("get", lines + "node1/x")), ("controller", ("put", asks + "node1/x", "{}"))):
            self.denied(user, *words)
        self.denied("node1", "get", "--prefix", records + "nodes/")
        self.denied("node1", "get", records + "nodes/node10")

        # While a job trains, users and roles are made, and one is taken away; nothing of it reaches the ranks.
        job = self.lab.job("rights", train__steps=100000, checkpoint__every_steps=1000, world__min=2)
        self.ctl("job", "start", "-f", self.lab.job_file(job))
        self.ctl("job", "wait", "rights", "--for", "running", "--timeout", "120")
        for rank in range(2):  # by the shared user and by one of a node's own
            self.assertIn("sdtrainer", self.ctl("job", "logs", "rights", "--rank", str(rank)))
        self.etcdctl("root", "role", "revoke-permission", "--prefix", "sdtrain-prod-operator", lines)
        text = self.ctl("job", "logs", "rights", code=1)
        self.assertEqual(text.count("etcd does not let this user read logs (%s)" % lines), 1, text)
        self.assertIn("sdctl: rank 1: its log is on node", text)
        self.roles()
        began = time.monotonic()
        text = self.roles("--node", "-", stdin="".join("made-%d\n" % i for i in range(NODES_MADE)))
        print("%d nodes' users in %.1f s" % (NODES_MADE, time.monotonic() - began))
        self.assertEqual(text.count(": writes nodes/made-"), NODES_MADE)
        self.roles("--retire", "made-0")
        self.assertNotIn("sdtrain-prod-node-made-0\n", self.etcdctl("root", "user", "list")[1])

        # What somebody granted beyond that goes with the next run.
        for arguments in (("sdtrain-prod-node-node1", "readwrite", records + "nodes/node2"),
                          ("--prefix", "sdtrain-prod-operator", "readwrite", records + "worlds/")):
            self.assertEqual(self.etcdctl("root", "role", "grant-permission", *arguments)[0], 0)
        self.roles("--node", "node1")
        self.roles()
        self.denied("node1", "put", records + "nodes/node2", "{}")
        self.denied("operator", "put", records + "worlds/x", "{}")

        # The shared user goes once every node has its own, and does not come back.
        self.assertIn("no user of their own yet: node2", self.roles("--retire-shared", fails=True))
        self.roles("--node", "node2")
        text = self.ctl("job", "status", "rights")
        self.assertIn("generation 1,", text)
        self.assertNotIn("incidents", text)
        self.stop("node2")
        self.node("node2", "node2")
        until(lambda: "node-left" in self.ctl("job", "events", "rights") or
              "generation 2," in self.ctl("job", "status", "rights"), "the job without node2")
        self.ctl("job", "wait", "rights", "--for", "running", "--timeout", "120")
        self.roles("--retire-shared")
        self.roles()
        self.denied_user("shared")
        self.ctl("job", "stop", "rights")
        self.ctl("job", "wait", "rights", "--for", "stopped", "--timeout", "120")

    def denied_user(self, user):
        code, text = self.etcdctl(user, "put", "/sdtrain/prod/nodes/node1", "{}")
        self.assertNotEqual(code, 0, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
