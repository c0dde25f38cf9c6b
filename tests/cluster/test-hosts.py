#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our packages on three systemd hosts, with etcd behind mTLS and least rights, as an operator meets them: services that
stop, restart, hang and are upgraded; hosts that reboot and lose their power; removal.

Program arguments are unittest's: test-hosts.py Services.test_restart runs one test."""
import json
import os
import re
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../system"))

from fleet import CLUSTER, CONTROLLERS, LEASE_SEC, PROGRAMS, raise_version
from lab import until
from scenario import SIZE, HostsCase, World, check_bits, main, set_up

NODE_LOST = "node-lost"
# It writes what it can reach, leaves a process of another session behind, and saves when it is asked to leave.
PROGRAM = """#!/bin/sh
trap 'echo left >left-$SDTRAIN_GENERATION; exit 0' TERM
id -un >user
for path in /etc/sdtrain/sdtraind.credentials /run/credentials/sdtraind.service /run/sdtrain /var/lib/sdtrain /var/log/sdtrain /etc/shadow; do
    { if [ -d $path ]; then ls $path; else cat $path; fi; } >/dev/null 2>&1 && echo $path
done >reached
journalctl --quiet -n 1 2>/dev/null | grep -q . && echo journal >>reached
for pid in $(pgrep -x sdtraind); do kill -0 $pid 2>/dev/null && echo sdtraind >>reached; done
echo done >>reached
setsid sleep 100000 &
n=0
while :; do
    n=$((n + 1))
    sdtrain-exec say STEP=$n
    sleep 0.2
done
"""


def setUpModule():
    set_up()
    World.fleet.begin_service()


def tearDownModule():
    check_bits()


class Installed(HostsCase):
    def test_status(self):
        """What an operator looks at first says what is going on, in words."""
        for host in self.fleet.hosts:
            text = host.run("systemctl", "status", "--no-pager", "--full", "sdtraind")
            self.assertIn("Active: active (running)", text)
            self.assertRegex(text, 'Status: ".*%s.*%s.*"' % (host.name, CLUSTER))
            self.assertRegex(text, r"Docs: man:sdtraind")
        leader = until(self.fleet.leader, "a leader", 30, 0.1)
        for host in self.fleet.hosts[:CONTROLLERS]:
            text = host.run("systemctl", "status", "--no-pager", "--full", "sdcontroller")
            self.assertRegex(text, 'Status: "[^"]*%s' % ("leading" if host is leader else "following"))
        for host in self.fleet.hosts:
            text = self.fleet.ctl("cluster", "status", host=host)
            self.assertNotIn("!", text)
            self.assertIn("%d with %d slots" % (SIZE, SIZE), text)

    def test_rights(self):
        """Who has a node's key can do no more than a node does."""
        allowed = {"node": {"nodes", "health", "ranks", "rendezvous", "checkpoints", "progress", "requests"},
                   "operator": {"specs", "desired", "cordons", "requests", "health"},
                   "controller": {"leader", "cordons", "specs", "desired", "worlds", "phases", "ranks", "rendezvous",
                                  "checkpoints", "progress", "incidents", "alerts", "requests"}}
        kinds = set.union(*allowed.values())
        # a deletion of what is not there needs the same right as a write, and disturbs nobody
        script = "".join("etcdctl del /sdtrain/%s/%s/nobody >/dev/null 2>&1 && echo %s\n" % (CLUSTER, kind, kind)
                         for kind in sorted(kinds)) + "true"
        for who, wanted in allowed.items():
            self.assertEqual(set(self.fleet.etcd(who, "sh", "-c", script).split()), wanted, who)
        code, text = self.fleet.try_etcd("node", "etcdctl", "get", "--prefix", "/sdtrain/%s/leader/" % CLUSTER)
        self.assertNotEqual(code, 0, text)
        self.assertIn("permission denied", text)
        code, text = self.fleet.try_etcd("node", "etcdctl", "put", "/elsewhere", "x")
        self.assertNotEqual(code, 0, text)
        # and without a certificate that etcd knows, nobody hears anything
        code, text = self.fleet.reachable().try_run("env", "SDTRAIN_ETCD=" + self.fleet.endpoints, "SDTRAIN_CLUSTER=" + CLUSTER,
                                                    "SDTRAIN_ETCD_CA=/etc/etcd/ca.pem", "sdctl", "node", "list")
        self.assertNotEqual(code, 0, text)

    def test_wrong_rights(self):
        """A node with an operator's key is refused, and says so where an operator looks."""
        host = self.fleet.hosts[-1]
        host.run("systemctl", "stop", "sdtraind")

        def give(who):
            for end in "pem", "key":
                host.write("/etc/sdtrain/sdtraind.credentials/etcd." + end,
                           self.fleet.authority.text("%s.%s" % (who, end)), 0o600)
        give("operator")
        self.addCleanup(host.run, "systemctl", "restart", "sdtraind")
        self.addCleanup(give, "node")
        host.run("systemctl", "start", "--no-block", "sdtraind")
        text = until(lambda: re.search("Status: .*refused.*", host.try_run("systemctl", "status", "sdtraind")[1]), "refusal",
                     60, 0.1).group()
        self.assertIn("not registered", text)
        self.assertIn("permission denied", host.run("journalctl", "--no-pager", "-o", "cat", "-u", "sdtraind", "-n", "20"))
        give("node")
        host.run("systemctl", "restart", "sdtraind")
        self.assertTrue(host.is_active("sdtraind"))

    def test_journal(self):
        """A job's lines are found by its name, whoever wrote them."""
        job = self.begin("journal")
        self.end()
        for host in self.fleet.hosts:
            text = host.run("journalctl", "--no-pager", "-o", "json", "JOB=" + job["name"])
            lines = [json.loads(line) for line in text.splitlines()]
            self.assertTrue(all(line["_SYSTEMD_UNIT"] in ("sdtraind.service", "sdcontroller.service") for line in lines))
            started = [line for line in lines if line["MESSAGE"].startswith("started as process")]
            self.assertEqual([line["GENERATION"] for line in started], ["1"])
            self.assertEqual(len(started[0]["RANK"]), 1)
        text = "".join(host.run("journalctl", "--no-pager", "-o", "cat", "-u", "sdcontroller", "JOB=" + job["name"])
                       for host in self.fleet.hosts[:CONTROLLERS])
        self.assertIn("world 1 of 3 ranks", text)


class Services(HostsCase):
    def left_in_order(self, host):
        """The node's ranks saved and left, and what goes on without them repeats nothing."""
        status = self.steady(SIZE - 1)
        self.assertEqual(status["incidents"], [])
        generation, name = status["generation"], self.job["name"]
        records = self.fleet.etcd("operator", "etcdctl", "get", "--print-value-only",
                                  "/sdtrain/%s/worlds/%s" % (CLUSTER, name))
        resumed = json.loads(records)["resume"]["step"]
        trained = host.run("sh", "-c", "cat /var/log/sdtrain/%s/g%d/rank*.log" % (name, generation - 1))
        self.assertEqual(max(int(step) for step in re.findall(r"\bstep (\d+)/", trained) + ["0"]), resumed
                         if re.search(r"\bstep \d+/", trained) else 0, trained[-2000:])
        self.assertIn("exited 0: left", host.run("journalctl", "--no-pager", "-o", "cat", "JOB=" + name,
                                                 "GENERATION=%d" % (generation - 1)))

    def test_stop_and_start(self):
        """A stop is a drain: saved, left, in time; a start is growth."""
        self.begin("stop")
        host = self.host_of(0)
        host.run("systemctl", "stop", "sdtraind")
        self.assertEqual(host.show("sdtraind", "Result"), "success")
        self.assertEqual(host.show("sdtraind", "ExecMainStatus"), "0")
        self.assertEqual(host.processes("sdtraind"), {})
        self.left_in_order(host)
        self.assertIn("left", self.fleet.ctl("node", "list"))
        host.run("systemctl", "start", "sdtraind")
        self.assertEqual(self.steady()["incidents"], [])
        self.end()

    def test_restart(self):
        self.begin("restart")
        host, generation = self.host_of(1), self.status["generation"]
        before = host.main_pid("sdtraind")
        host.run("systemctl", "restart", "sdtraind")
        self.assertNotEqual(host.main_pid("sdtraind"), before)
        status = until(lambda: self.steady() if self.fleet.status(self.job)["generation"] >= generation + 2 else None,
                       "there and back", 120, 0.1)
        self.assertEqual(status["incidents"], [])
        self.end()

    def test_kill(self):
        """SIGKILL of the whole service, then of sdtraind alone: its ranks do not outlive it."""
        self.begin("kill")
        for whom in "all", "main":
            host, generation = self.host_of(1), self.status["generation"]
            old = host.processes("sdtraind")
            restarts = int(host.show("sdtraind", "NRestarts"))
            host.run("systemctl", "kill", "--signal=KILL", "--kill-whom=" + whom, "sdtraind")
            self.recovered((NODE_LOST, "node-restarted", "trainer-died"), host, generation)
            self.assertEqual(int(host.show("sdtraind", "NRestarts")), restarts + 1)
            self.assertEqual(set(old) & set(host.processes("sdtraind")), set())
        self.end()

    def test_hang(self):
        """sdtraind stands still: its ranks end themselves after a lease, systemd ends and restarts it."""
        self.begin("hang")
        host, generation = self.host_of(0), self.status["generation"]
        old = host.processes("sdtraind")
        (rank,) = [pid for pid, (program, _) in old.items() if program == "sdtrainer"]
        main_pid, began = host.main_pid("sdtraind"), time.monotonic()
        host.run("kill", "-STOP", str(main_pid))
        until(lambda: host.try_run("test", "-d", "/proc/%d/fd" % rank)[0] != 0 or
              host.try_run("sh", "-c", "grep -q '^State:.*Z' /proc/%d/status" % rank)[0] == 0,
              "the rank's end by its own timer", 30, 0.1)
        self.assertEqual(host.main_pid("sdtraind"), main_pid, "systemd ended it before the rank's own timer did")
        until(lambda: host.main_pid("sdtraind") not in (0, main_pid), "the watchdog's restart", 60, 0.2)
        print("hang: restarted after %.1f s" % (time.monotonic() - began), flush=True)
        self.recovered(NODE_LOST, host, generation)
        self.assertEqual(set(old) & set(host.processes("sdtraind")), set())
        self.assertIn("watchdog", host.run("journalctl", "--no-pager", "-o", "cat", "-b", "-t", "systemd", "-u", "sdtraind").lower())
        self.end()

    def test_reload(self):
        """Good settings are taken over and bad ones refused, while ranks train on."""
        self.begin("reload")
        host, generation = self.host_of(1), self.status["generation"]
        pid = host.main_pid("sdtraind")
        self.fleet.configure(host, "sdtraind", hang_floor_sec=61)
        host.run("systemctl", "reload", "sdtraind")
        until(lambda: "configuration reloaded" in
              host.run("journalctl", "--no-pager", "-o", "cat", "-u", "sdtraind", "_PID=%d" % pid), "the reload", 30, 0.1)
        self.fleet.configure(host, "sdtraind", slots=0)
        code, text = host.try_run("systemctl", "reload", "sdtraind")
        self.assertNotEqual(code, 0, text)
        text = host.run("journalctl", "--no-pager", "-o", "cat", "-u", "sdtraind", "-n", "20")
        self.assertIn("sdtraind.json: slots: 0", text)
        self.assertEqual((host.main_pid("sdtraind"), host.is_active("sdtraind")), (pid, True))
        self.fleet.configure(host, "sdtraind")
        self.trains_on()
        self.assertEqual(self.status["generation"], generation)
        self.end()

    def lead_elsewhere(self, leader):
        return until(lambda: self.fleet.leader() not in (None, leader) and self.fleet.leader(), "another leader", 60, 0.1)

    def test_controllers(self):
        """The leader stops, is killed, hangs: the other one leads, and the job does not notice."""
        self.begin("controllers")
        leader = until(self.fleet.leader, "a leader", 60, 0.1)
        leader.run("systemctl", "stop", "sdcontroller")
        self.lead_elsewhere(leader)
        leader.run("systemctl", "start", "sdcontroller")
        for signal in "KILL", "STOP":
            leader = self.fleet.leader()
            pid = leader.main_pid("sdcontroller")
            leader.run("systemctl", "kill", "--signal=" + signal, "--kill-whom=main", "sdcontroller")
            self.lead_elsewhere(leader)
            until(lambda: leader.main_pid("sdcontroller") not in (0, pid), "its restart after SIG" + signal, 60, 0.2)
            until(lambda: leader.is_active("sdcontroller"), "its return", 60, 0.1)
        self.trains_on()
        self.assertEqual((self.steady()["generation"], self.status["incidents"]), (1, []))
        self.end()

    def test_no_controller(self):
        """Nobody decides: ranks train on, what fails meanwhile is seen to later."""
        self.begin("nobody")
        host = self.host_of(1)
        for other in self.fleet.hosts[:CONTROLLERS]:
            other.run("systemctl", "stop", "sdcontroller")
        self.trains_on()
        (rank,) = [pid for pid, (program, _) in host.processes("sdtraind").items() if program == "sdtrainer"]
        host.run("kill", "-KILL", str(rank))
        until(lambda: rank not in host.processes("sdtraind"), "its death", 30, 0.1)
        for other in self.fleet.hosts[:CONTROLLERS]:
            other.run("systemctl", "start", "sdcontroller")
        self.recovered("trainer-died", host, 1)
        self.end()

    def test_upgrade(self):
        """A higher version: controllers restart, daemons go on with what they host until they are restarted."""
        files = raise_version(self.fleet.packages, "99.0", self.lab.path("packages/second"))
        self.begin("upgrade")
        daemons = {host: host.main_pid("sdtraind") for host in self.fleet.hosts}
        controllers = {host: host.main_pid("sdcontroller") for host in self.fleet.hosts[:CONTROLLERS]}
        for host in self.fleet.hosts:
            self.fleet.install(host, files)
            self.assertEqual(host.run("dpkg-query", "-W", "-f=${Version}", "sdtrain-node"), "99.0")
        for host, pid in daemons.items():
            self.assertEqual(host.main_pid("sdtraind"), pid, host.name)
        for host, pid in controllers.items():
            until(lambda: host.is_active("sdcontroller"), "the new controller", 60, 0.1)
            self.assertNotEqual(host.main_pid("sdcontroller"), pid, host.name)
        self.trains_on()
        self.assertEqual((self.steady()["generation"], self.status["incidents"]), (1, []))
        host = self.host_of(2)
        host.run("systemctl", "restart", "sdtraind")
        self.assertNotIn("deleted", host.run("readlink", "/proc/%d/exe" % host.main_pid("sdtraind")))
        until(lambda: self.fleet.status(self.job)["generation"] >= 3, "there and back", 120, 0.1)
        self.assertEqual(self.steady()["incidents"], [])
        self.end()


class Machines(HostsCase):
    def test_reboot(self):
        """An operator reboots a host: the drain comes first, and the services come back by themselves."""
        self.begin("reboot")
        host = self.host_of(0)
        boot = host.run("cat", "/proc/sys/kernel/random/boot_id")
        host.reboot()
        self.assertNotEqual(host.run("cat", "/proc/sys/kernel/random/boot_id"), boot)
        until(lambda: self.fleet.status(self.job)["generation"] >= 3, "there and back", 120, 0.1)
        self.assertEqual(self.steady()["incidents"], [])
        self.end()

    def dies(self, name, die):
        """The host of a rank goes by die(), and comes back when the job has gone on without it."""
        self.begin(name)
        host = self.host_of(2)
        die(host)
        self.steady(SIZE - 1)
        host.power_on()
        host.wait_booted()
        self.recovered(NODE_LOST, host, 1)
        self.end()

    def test_power_loss(self):
        self.dies("power", lambda host: host.power_loss())

    def test_kernel_dies(self):
        self.dies("init", lambda host: host.kill_init())

    def test_frozen(self):
        """A host stands still for longer than its lease, and wakes in a world that has moved on."""
        self.begin("frozen")
        host = self.host_of(2)
        host.freeze()
        self.steady(SIZE - 1)
        host.freeze(False)
        self.recovered(NODE_LOST, host, 1)
        self.end()

    def test_cut_off(self):
        """A host hears nobody: its etcd member has no quorum, and its ranks are not waited for."""
        self.begin("cut")
        host = self.host_of(2)
        others = [other for other in self.fleet.hosts if other is not host]
        host.cut(others)
        self.steady(SIZE - 1)
        host.heal()
        self.recovered(NODE_LOST, host, 1)
        self.end()


class Programs(HostsCase):
    """Jobs of kind "exec": their programs are another user, in units that systemd starts for sdtraind."""
    FOLDER = "/srv/program"

    def begin(self, name):
        for host in self.fleet.hosts:
            host.run("sh", "-c", "rm -rf %s && install -d -o sdtrain-exec %s" % (self.FOLDER, self.FOLDER))
            host.write(self.FOLDER + "/program", PROGRAM, 0o755)
        self.job = {"name": name, "kind": "exec", "world": {"min": 1, "max": SIZE},
                    "exec": {"command": ["./program"], "dir": self.FOLDER, "leave_s": 20},
                    "recovery": {"max_failures_at_same_step": 50, "grow_interval_s": 0}}
        self.addCleanup(self.restore)
        self.fleet.submit(self.job, who="person")
        self.steady()

    def units(self, host):
        return [line.split()[0] for line in host.run("systemctl", "list-units", "--plain", "--no-legend", "sdtrain-exec@*").splitlines()]

    def read(self, host, name):
        return host.run("cat", "%s/%s" % (self.FOLDER, name))

    def end(self):
        """Nothing is left of the programs, whatever they have started."""
        self.fleet.ctl("job", "stop", self.job["name"])
        self.fleet.wait(self.job, "stopped")
        for host in self.fleet.hosts:
            until(lambda: not self.units(host), "the end of all units on " + host.name, 30, 0.1)
            self.assertEqual(host.try_run("pgrep", "-U", "sdtrain-exec")[1], "")
            self.no_orphans(host)
        self.job = None

    def test_another_user(self):
        """It reads no key, folder or journal of sdtraind's, signals none of its processes, and cannot start another unit."""
        found = self.fleet.try_ctl("doctor", "-o", "json")[1]
        self.assertEqual({(one["state"], *one["where"]) for one in json.loads(found)["findings"] if one["check"] == "programs"},
                         {("ok", *(host.name for host in self.fleet.hosts))}, found)
        self.begin("user")
        for host in self.fleet.hosts:
            (unit,) = self.units(host)
            until(lambda: "done" in self.read(host, "reached"), "what the program can reach", 30, 0.1)
            self.assertEqual(self.read(host, "user"), "sdtrain-exec\n")
            self.assertEqual(self.read(host, "reached"), "done\n")
            self.assertEqual({user for user in host.run("ps", "-o", "user:20=", "-C", "program").split()}, {"sdtrain-exec"})
            for user, code in (("sdtrain", 0), ("sdtrain-exec", 1), ("nobody", 1)):
                self.assertEqual(host.try_run("runuser", "-u", user, "--", "test", "-w", "/run/sdtrain-exec.sock")[0], code, user)
            self.assertTrue(host.show(unit, "ControlGroup").startswith("/sdtrain.slice/sdtrain-exec.slice/"))
        self.end()

    def test_units(self):
        """However a unit ends, its program has ended with all that it has started, and the job goes on."""
        self.begin("units")
        for how in ("killed", "stopped", "frozen"):
            host, generation = self.host_of(1), self.status["generation"]
            (unit,) = self.units(host)
            old, began = host.processes(unit), time.monotonic()
            if how == "killed":
                host.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", unit)
            elif how == "stopped":
                host.run("systemctl", "stop", unit)
            else:
                host.run("kill", "-STOP", str(host.main_pid(unit)))
            until(lambda: self.fleet.status(self.job)["generation"] > generation, "another world", 60, 0.1)
            print("%s: another world after %.1f s" % (how, time.monotonic() - began), flush=True)
            self.recovered("trainer-died", host, generation)
            (unit,) = self.units(host)
            self.assertEqual(set(old) & set(host.processes(unit)), set())
        self.end()

    def test_installed_again(self):
        """An installation leaves programs alone, as it does trainers."""
        self.begin("again")
        generation, units = self.status["generation"], [self.units(host) for host in self.fleet.hosts]
        for host in self.fleet.hosts:
            self.fleet.install(host, self.fleet.packages)
        self.trains_on()
        self.assertEqual(self.steady()["generation"], generation)
        self.assertEqual([self.units(host) for host in self.fleet.hosts], units)
        self.end()

    def test_daemon(self):
        """sdtraind is killed, and its units end before the next one's begin. Stopped, it lets programs save first."""
        self.begin("daemon")
        host, generation = self.host_of(1), self.status["generation"]
        (unit,) = self.units(host)
        host.run("systemctl", "kill", "--signal=KILL", "--kill-whom=all", "sdtraind")
        self.recovered((NODE_LOST, "node-restarted", "trainer-died"), host, generation)
        self.assertNotIn(unit, self.units(host))
        for how in ("stop", "reboot"):
            host, generation = self.host_of(1), self.steady()["generation"]
            if how == "stop":
                host.run("systemctl", "stop", "sdtraind", timeout=90)
            else:
                host.reboot()
            self.assertEqual(self.read(host, "left-%d" % generation), "left\n")
            if how == "stop":
                self.assertEqual(self.units(host), [])
                host.run("systemctl", "start", "sdtraind")
            self.assertEqual(self.steady()["incidents"][1:], [])
        self.end()


class Removed(HostsCase):
    def test_purge(self):
        """Nothing is left of the packages; what an operator wrote goes with the purge; they can come again."""
        host = self.fleet.hosts[-1]
        names = [name for name in host.run("dpkg-query", "-W", "-f=${Package}\\n").split() if name.startswith("sdtrain")]
        cgroup = host.show("sdtraind", "ControlGroup")
        host.run("dpkg", "--purge", *names, timeout=180)
        text = host.run("sh", "-c", "find / -xdev \\( -name '*sdtrain*' -o -name '*sdcontroller*' -o -name '*sdctl*' "
                        "-o -name '*sdprep*' \\) -not -path '/proc/*' -not -path '/srv/shared/*'; "
                        "find /run /sys/fs/cgroup -name '*sdtrain*'")
        left = set(text.split()) - {"/etc/sysusers.d/sdtrain.conf"}
        self.assertEqual(left, set())
        self.assertNotEqual(host.try_run("test", "-e", "/sys/fs/cgroup" + cgroup)[0], 0)
        self.assertEqual(host.try_run("pgrep", "-U", "sdtrain")[1], "")
        self.assertIn("0 loaded", host.run("systemctl", "list-units", "--all", "--no-pager", "sd*d.service", "sdcontroller*"))
        until(lambda: host.name not in self.fleet.ctl("node", "list") or "left" in self.fleet.ctl("node", "list"),
              "the node's leave", 30, 0.1)

        self.fleet.write_settings(host)
        self.fleet.install(host, self.fleet.packages)
        self.fleet.start(host)
        self.begin("purge")
        self.end()


if __name__ == "__main__":
    main()
