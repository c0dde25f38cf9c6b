# SPDX-License-Identifier: Apache-2.0
"""Runs a test that may hang, eat memory or leave processes behind, and ends all that it started.

usage: mutants_keeper.py LIMIT-SECONDS PROGRAM ARGUMENT...
Ends as the program does. Where it had to be ended, the last line of the output says why: "KEEPER: timed out".
"""
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

MEMORY_BYTES, FILE_BYTES = 4 << 30, 1 << 30


def become_reaper():
    """Descendants whose parents end become ours; and we end when our parent does."""
    libc = ctypes.CDLL(None)
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    libc.prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def descendants():
    """{process: bytes resident} of all below this one."""
    parents, sizes = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry)], sizes[int(entry)] = int(fields[1]), int(fields[21]) * resource.getpagesize()
    ours, grew = {os.getpid()}, True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours, grew = ours | more, bool(more)
    return {pid: sizes[pid] for pid in ours - {os.getpid()}}


def end_descendants():
    """Ends and reaps all; a process that forks meanwhile is found in the next round."""
    for _ in range(1000):
        left = descendants()
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.002)


def limits():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))


def main():
    limit_sec, words = float(sys.argv[1]), sys.argv[2:]
    become_reaper()
    began, why = time.monotonic(), None
    try:
        process = subprocess.Popen(words, start_new_session=True, preexec_fn=limits)
        while process.returncode is None and not why:
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                if time.monotonic() - began > limit_sec:
                    why = "timed out"
                elif sum(descendants().values()) > MEMORY_BYTES:
                    why = "too much memory"
    finally:
        end_descendants()
    if why:
        print(f"\nKEEPER: {why}", flush=True)
    return 1 if why or process.returncode < 0 else process.returncode


sys.exit(main())
