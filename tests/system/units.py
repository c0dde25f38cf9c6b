# SPDX-License-Identifier: Apache-2.0
"""sdtrain-exec.socket without systemd: each connection is a host of another user, in a cgroup of its own."""
import os
import pwd
import shutil
import signal
import socket
import subprocess
import threading

from lab import BIN, until

USER = "nobody"


def _mount():
    with open("/proc/mounts") as file:
        return next((line.split()[1] for line in file if line.split()[2] == "cgroup2"), None)


def skipped():
    """Why this machine can't have such units; None: it can."""
    if os.geteuid() != 0:
        return "programs run as another user only where root starts them"
    try:
        folder = "%s%s/sdtrain-try-%d" % (_mount(), _own(), os.getpid())
        os.mkdir(folder)
        try:
            os.chown(folder, pwd.getpwnam(USER).pw_uid, -1)
            os.stat(folder + "/cgroup.kill")
        finally:
            os.rmdir(folder)
    except OSError as e:
        return "cgroups of version 2 cannot be made: %s" % e
    return None


def _own():
    with open("/proc/self/cgroup") as file:
        return next((line for line in file if line.startswith("0::")), "0::/")[3:].strip()


class Unit:
    """One connection's."""

    def __init__(self, units, connection, number):
        self.folder = "%s/%d.service" % (units.folder, number)
        os.mkdir(self.folder)
        for name in ("", "/cgroup.procs", "/cgroup.subtree_control"):
            os.chown(self.folder + name, units.user.pw_uid, units.user.pw_gid)
        prepared = connection.fileno()

        def prepare():
            with open(self.folder + "/cgroup.procs", "w") as file:
                file.write("0")
            os.dup2(prepared, 3)
            os.set_inheritable(3, True)
            os.setgroups([])
            os.setgid(units.user.pw_gid)
            os.setuid(units.user.pw_uid)
            os.execve(units.program, [units.program, "host"],
                      {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid()), "STATE_DIRECTORY": units.state, "PATH": os.defpath,
                       "TESTLAB": units.lab.folder})

        with open(units.log, "a") as log:
            self.host = subprocess.Popen(["unreached"], executable=units.program, preexec_fn=prepare, pass_fds=(3,), stdout=log,
                                         stderr=log, stdin=subprocess.DEVNULL)
        self.thread = threading.Thread(target=self._tend, daemon=True)
        self.thread.start()

    def _tend(self):
        self.host.wait()
        self.end()

    def populated(self):
        try:
            with open(self.folder + "/cgroup.events") as file:
                return "populated 1" in file.read()
        except OSError:
            return False

    def end(self):
        """KillMode=control-group, KillSignal=SIGKILL."""
        try:
            with open(self.folder + "/cgroup.kill", "w") as file:
                file.write("1")
        except OSError:
            return
        until(lambda: not self.populated(), "the end of " + self.folder)
        for folder, _, _ in os.walk(self.folder, topdown=False):
            os.rmdir(folder)


class Units:
    """Those of one node."""

    def __init__(self, lab, name):
        self.lab, self.user = lab, pwd.getpwnam(USER)
        self.program, self.log = lab.path("units", name, "sdtrain-exec"), lab.path("units", name, "log")
        self.socket, self.state = lab.path("units", name, "socket"), lab.path("units", name, "state")
        os.makedirs(self.state)
        os.chown(self.state, self.user.pw_uid, self.user.pw_gid)
        shutil.copy(os.path.join(BIN, "sdtrain-exec"), self.program)
        os.chmod(lab.folder, 0o711)
        self.slice = os.path.join(_own(), "%s-%s.slice" % (os.path.basename(lab.folder), name))
        self.folder = _mount() + self.slice
        os.mkdir(self.folder)
        lab.undo("find", self.folder, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";")
        self.units = []
        self.listen()

    def listen(self):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.socket)
        self.listener.listen()
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                self.units.append(Unit(self, connection, len(self.units)))

    def stop(self):
        """The socket unit's, not that of what it has started."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        os.unlink(self.socket)

    def alive(self):
        return [unit for unit in self.units if unit.populated()]

    def close(self):
        for unit in self.units:
            if unit.host.poll() is None:
                os.kill(unit.host.pid, signal.SIGKILL)
            unit.thread.join()
