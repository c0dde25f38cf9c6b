# SPDX-License-Identifier: Apache-2.0
"""The programs that stages of ops/gpu start, and what a run leaves behind: no process, no scratch folder, no half of a file."""
import contextlib
import ctypes
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PREFIX = "sdtrain-gpu-run-"
DYING_SEC = 20  # of a process that was killed; one that a driver holds may never end
TOLD_MAX = 1 << 26  # bytes that are read of what a program said
libc = ctypes.CDLL(None)
given_up = set()


def write(path, text):
    """Puts a text file whole or not at all."""
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".new", path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path + ".new")
        raise


def children_of_all():
    """This process' children as each process names its parent, where the kernel keeps no list of them (gVisor has none)."""
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            pid, rest = int(path.split("/")[2]), file.read().rpartition(")")[2].split()
            if len(rest) > 1 and int(rest[1]) == os.getpid():
                yield pid


def children():
    """This thread's, but for those that were given up."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            found = [int(child) for child in file.read().split()]
    except FileNotFoundError:
        found = children_of_all()
    return [child for child in found if child not in given_up]


def end_what_is_left(seconds=DYING_SEC):
    """Kills the children of this process, and those that become its children as their parents die: it is the subreaper. Returns those
    that do not end in time, which are given up."""
    deadline = time.monotonic() + seconds
    while children():
        if time.monotonic() > deadline:
            left = children()
            given_up.update(left)
            return left
        for child in children():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    return []


def die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def call(command, seconds, environment):
    """The exit code, standard output and standard error; the code is None: it was not done in time."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=said,
                                       preexec_fn=die_with_parent)  # pylint: disable=subprocess-popen-preexec-fn,consider-using-with
        except OSError as error:
            return 127, "", str(error)
        late = ""
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            late = f"\nnot done after {seconds:.0f} s"
        left = end_what_is_left()
        if left:
            late += f"\nprocesses {left} were killed and do not end"
        process.poll()
        texts = []
        for file in (out, said):
            file.seek(0)
            texts.append(file.read(TOLD_MAX).decode(errors="replace"))
        return None if late else process.returncode, texts[0], texts[1] + late


def is_running(pid):
    return os.path.exists(f"/proc/{pid}")


SHARED_MEMORY, SHARED_MEMORY_BYTES = "/dev/shm", 40e9


def roomy():
    """Chooses the machine's memory for temporary files, where it has room for two checkpoints and TMPDIR names no other place."""
    with contextlib.suppress(OSError):
        if "TMPDIR" not in os.environ and shutil.disk_usage(SHARED_MEMORY).free >= SHARED_MEMORY_BYTES:
            tempfile.tempdir = SHARED_MEMORY


@contextlib.contextmanager
def scratch():
    """Where temporary files lie while the block runs. SIGTERM ends it as an exception would: nothing is left. What a killed run has left
    is removed by the next one."""
    def end(number, _):
        end_what_is_left()  # it writes where folders are removed now
        raise SystemExit(128 + number)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    roomy()
    try:
        mine = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
    except OSError as error:
        sys.exit(f"ops/gpu: no temporary file can be written: {error}. TMPDIR names another folder")
    for folder in glob.glob(os.path.join(tempfile.gettempdir(), PREFIX + "*")):
        pid = os.path.basename(folder)[len(PREFIX):].partition("-")[0]
        if pid.isdecimal() and not is_running(pid) and os.stat(folder).st_uid == os.getuid() and not os.path.islink(folder):
            shutil.rmtree(folder, ignore_errors=True)
    before, tempfile.tempdir = tempfile.tempdir, mine
    try:
        yield mine
    finally:
        end_what_is_left()
        tempfile.tempdir = before
        shutil.rmtree(mine, ignore_errors=True)
