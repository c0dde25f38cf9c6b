# SPDX-License-Identifier: Apache-2.0
"""What the S3 servers of the tests share: a few programs in a scratch folder that live and end together.

A server is a process of its own. When it answers it prints one line of JSON (and writes it to server.json in its
folder). It ends, and everything that it started ends, at SIGTERM or SIGINT, when the process that it was
started for is gone, or when one of its programs dies. SIGKILL to it ends its programs too.
"""
import argparse
import ctypes
import glob
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

MARK = ".sdtrain-s3"  # a folder with it is ours to empty
START_SEC = 180
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """Could not be started; the text says why."""


def free_port(address="127.0.0.1"):
    """A port that nobody listens on, below those that the kernel gives to outgoing connections."""
    for _ in range(200):
        port = random.SystemRandom().randrange(10000, 32000)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((address, port))
            except OSError:
                continue
            return port
    raise Failed("no free port on %s" % address)


def start_time(pid):
    """With the pid, the name of a process for ever; None: it is gone."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def require(programs, packages):
    """Where Debian puts daemons is not in everybody's PATH."""
    os.environ["PATH"] += ":/usr/sbin:/usr/bin:/sbin"
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        raise Failed("there is no %s: `ops/packages test` installs it (%s)" % (", ".join(missing), packages))


def _die_with_parent():
    os.setsid()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Service:
    """The programs of one server; a subclass has start(), which returns what the line tells of them."""

    needs, packages, in_memory = (), "", True

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.programs, self.environment = {}, dict(os.environ)
        self.deadline = time.monotonic() + START_SEC

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def run(self, *command):
        """Runs it to its end; its output."""
        with open(self.path("setup.log"), "ab") as log:
            try:
                done = subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=log, text=True, timeout=START_SEC)
            except subprocess.TimeoutExpired:
                raise Failed("%s does not end" % " ".join(command)) from None
        if done.returncode != 0:
            raise Failed("%s exits %d%s" % (" ".join(command), done.returncode, self.last_words("setup")))
        return done.stdout

    def begin(self, name, *command):
        with open(self.path(name + ".log"), "ab") as log:
            self.programs[name] = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                                                   stderr=log, preexec_fn=_die_with_parent)

    def until(self, condition, what):
        while not condition():
            for name, program in self.programs.items():
                if program.poll() is not None:
                    raise Failed("%s ended with %d%s" % (name, program.returncode, self.last_words(name)))
            if time.monotonic() > self.deadline:
                raise Failed("not within %d s: %s" % (START_SEC, what))
            time.sleep(0.02)

    def last_words(self, name):
        try:
            with open(self.path(name + ".log"), errors="replace") as file:
                return ":\n" + "".join(file.readlines()[-8:])
        except OSError:
            return ""

    def end(self):
        for program in self.programs.values():
            program.kill()
        for program in self.programs.values():
            program.wait()


def connects(address, port):
    try:
        socket.create_connection((address, port), 1).close()
        return True
    except OSError:
        return False


def _prepare(folder):
    if os.path.isdir(folder) and os.listdir(folder) and not os.path.exists(os.path.join(folder, MARK)):
        raise Failed("%s is not empty, and no server of the tests has made it" % folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    open(os.path.join(folder, MARK), "w").close()


def _remove_stale(base):
    """Folders of servers that got SIGKILL."""
    for path in glob.glob(os.path.join(base, "sdtrain-s3-*", "server.json")):
        try:
            with open(path) as file:
                says = json.load(file)
            if start_time(says["pid"]) != says["start_time"]:
                shutil.rmtree(os.path.dirname(path), ignore_errors=True)
        except (OSError, ValueError):
            pass  # it goes just now


def _start(kind, options, folder):
    """Another process may take a port between our look and our use of it: then all of it again."""
    for attempt in range(3):
        _prepare(folder)
        service = kind(options, folder)
        try:
            return service, service.start()
        except Failed:
            service.end()
            if attempt == 2 or time.monotonic() > service.deadline:
                raise
        except BaseException:
            service.end()
            raise


def _watch(service, patron):
    """Until the patron is gone (None) or a program is (its name)."""
    poll = select.poll()
    watched = {}
    for name, pid in [("", patron)] + [(name, program.pid) for name, program in service.programs.items()]:
        try:
            watched[os.pidfd_open(pid)] = name
        except ProcessLookupError:
            return name or None
    for fd in watched:
        poll.register(fd, select.POLLIN)
    name = watched[poll.poll()[0][0]]
    return name or None


def main(kind, description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--dir", help="scratch folder, which is kept; otherwise one in memory, which is removed")
    parser.add_argument("--address", default="127.0.0.1", help="where the endpoint listens, ADDRESS[:PORT]")
    parser.add_argument("--while", type=int, dest="patron", default=os.getppid(), metavar="PID",
                        help="ends with this process; by default with whoever started it")
    kind.add_options(parser)
    options = parser.parse_args()
    address, _, port = options.address.partition(":")
    options.address, options.port = address, int(port) if port else free_port(address)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    memory = "/dev/shm" if kind.in_memory and os.access("/dev/shm", os.W_OK) else None
    folder = os.path.abspath(options.dir) if options.dir else tempfile.mkdtemp(prefix="sdtrain-s3-", dir=memory)
    if not options.dir:
        open(os.path.join(folder, MARK), "w").close()
        _remove_stale(os.path.dirname(folder))
    service = None
    try:
        require(kind.needs, kind.packages)
        service, says = _start(kind, options, folder)
        says.update(pid=os.getpid(), start_time=start_time(os.getpid()), dir=folder,
                    pids={name: program.pid for name, program in service.programs.items()})
        line = json.dumps(says)
        service.write("server.json.new", line + "\n")
        os.rename(service.path("server.json.new"), service.path("server.json"))
        print(line, flush=True)
        ended = _watch(service, options.patron)
        if ended:
            print("%s: %s has ended%s" % (parser.prog, ended, service.last_words(ended)), file=sys.stderr)
            return 1
        return 0
    except Failed as e:
        print("%s: %s" % (parser.prog, e), file=sys.stderr)
        return 1
    finally:
        if service:
            service.end()
        if not options.dir:
            shutil.rmtree(folder, ignore_errors=True)
