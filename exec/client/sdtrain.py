# SPDX-License-Identifier: Apache-2.0
"""Reports from a program to sdtrain, and requests of sdtrain to the program.

A job of kind "exec" gives its program a socket, SDTRAIN_SOCKET. Without it (the program was started by hand, or by
another launcher) every call does nothing and returns at once, so that one script serves everywhere:

    import sdtrain

    checkpoint = sdtrain.resume()                  # ("s3://.../step-400", 400), or None
    sdtrain.ready()
    for step in range(first, last):
        loss = train(step)
        sdtrain.step(step + 1, loss=loss)          # steps that are done
        if sdtrain.save_requested() or sdtrain.leaving():
            uri = save(step + 1)
            sdtrain.checkpoint(uri, step + 1)      # once all of it is durable; rank 0 only
        if sdtrain.leaving():
            break

No call blocks a step: a report of a step is dropped where sdtrain does not receive it in time. A checkpoint is not.
The socket and its lines are described in docs/operating/programs.md. This file needs only Python's own library.
"""
from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import Dict, FrozenSet, Optional, Tuple

__all__ = ["active", "ready", "step", "stage", "checkpoint", "register", "committed", "status", "watchdog", "stacks",
           "extend", "finished", "leaving", "save_requested", "resume", "held", "result", "artifact"]

_PACKET_BYTES = 4096


def _steps(text: str) -> FrozenSet[int]:
    return frozenset(int(step) for step in text.split(",") if step)


class _Link:
    """One connection of one process. A forked child makes its own at its first call."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pid = 0  # of the process that has tried to connect; 0: none has, or is to try again
        self.socket: Optional[socket.socket] = None
        self.leave_at: Optional[float] = None
        self.polls = False  # sdtrain knows that this program calls leaving()
        self.save = False
        self.answers: Dict[int, bool] = {}
        self.committed: Optional[int] = None
        self.held = _steps(os.environ.get("SDTRAIN_HOLD", ""))

    def open(self) -> Optional[socket.socket]:
        if self.pid == os.getpid():
            return self.socket
        self.pid = os.getpid()
        self.socket = None  # a parent's connection stays the parent's
        path = os.environ.get("SDTRAIN_SOCKET")
        if not path:
            return None
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        s.setblocking(False)
        try:
            s.connect(path)
        except BlockingIOError:  # sdtrain accepts nobody at the moment: the next call tries again
            s.close()
            self.pid = 0
            return None
        except OSError:
            s.close()
            return None
        self.socket = s
        return s

    def send(self, lines: Dict[str, object], timeout: float = 0.0) -> bool:
        packet = "".join("%s=%s\n" % (key, value) for key, value in lines.items() if value is not None).encode()
        if len(packet) > _PACKET_BYTES:
            raise ValueError("a report of %d bytes is longer than %d" % (len(packet), _PACKET_BYTES))
        end = time.monotonic() + timeout
        with self.lock:
            while True:
                s = self.open()
                if s is None and self.pid:
                    return False
                try:
                    if s is not None:
                        s.send(packet)
                        return True
                except BlockingIOError:
                    pass
                except OSError:
                    self.drop()
                    return False
                left = end - time.monotonic()
                if left <= 0:
                    return False
                select.select([], [s] if s else [], [], left if s else min(left, 0.05))

    def drop(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None

    def receive(self, timeout: float = 0.0) -> None:
        """Takes what sdtrain has sent. Waits for a first packet at most so long."""
        with self.lock:
            s = self.open()
            if s is None:
                return
            if timeout > 0:
                select.select([s], [], [], timeout)
            while True:
                try:
                    packet = s.recv(_PACKET_BYTES)
                except BlockingIOError:
                    return
                except ConnectionResetError:
                    continue  # reported once, before what sdtrain has sent last
                except OSError:
                    packet = b""
                if not packet:
                    self.drop()
                    return
                for line in packet.decode("utf-8", "replace").splitlines():
                    self.take(*line.partition("=")[::2])

    def take(self, key: str, value: str) -> None:
        if key == "LEAVE":
            self.leave_at = time.monotonic() + float(value)
        elif key == "SAVE":
            self.save = True
        elif key == "HOLD":
            self.held = _steps(value)
        elif key in ("COMMITTED", "REFUSED"):
            self.answers[int(value)] = key == "COMMITTED"
            if key == "COMMITTED":
                self.committed = max(int(value), self.committed or 0)


_link = _Link()


def active() -> bool:
    """Whether sdtrain runs this program."""
    with _link.lock:
        return _link.open() is not None


def ready() -> None:
    """The program has restored its state and begins with its first step."""
    _link.send({"READY": 1}, timeout=5)


def step(done: int, loss: Optional[float] = None, grad_norm: Optional[float] = None, lr: Optional[float] = None,
         samples: Optional[int] = None) -> None:
    """So many steps are done, since step 0 of the job. samples: since step 0, too."""
    _link.send({"STEP": int(done), "LOSS": loss, "GRAD_NORM": grad_norm, "LR": lr, "SAMPLES": samples})


def stage(name: str) -> None:
    """What this rank does now: "data", "compute", "collective" or "save". A hang is judged by it."""
    if name not in ("data", "compute", "collective", "save"):
        raise ValueError("stage: %r is none of data, compute, collective, save" % name)
    _link.send({"STAGE": name})


def register(uri: str, done: int, timeout: float = 5.0) -> bool:
    """Registers a checkpoint of which everything is durable, and does not wait for the answer; rank 0 only.

    committed() tells when it is the one that the next start gets. Until then keep the one before. Returns whether the
    report was sent; True without sdtrain.
    """
    with _link.lock:
        if _link.open() is None and _link.pid:
            return True
        _link.answers.pop(int(done), None)
        return _link.send({"CHECKPOINT": uri, "STEP": int(done)}, timeout=timeout)


def committed() -> Optional[int]:
    """The newest step whose checkpoint was committed since this program began; None: none."""
    _link.receive()
    return _link.committed


def held() -> FrozenSet[int]:
    """Steps of checkpoints that evaluations read: do not remove these, until a later commit is told without them."""
    _link.receive()
    return _link.held


def checkpoint(uri: str, done: int, timeout: float = 60.0) -> bool:
    """Registers a checkpoint as register() does, and waits until it is committed. While etcd is away, that takes long.

    Returns whether sdtrain has committed it. False: it was refused, since this world has ended, since the one before
    waits for its answer, or since the URI lies outside of the job's checkpoint.uri; or no answer came in time. Without
    sdtrain the answer is True.
    """
    with _link.lock:
        if _link.open() is None and _link.pid:
            return True
        end = time.monotonic() + timeout
        if not register(uri, done, timeout):
            return False
        while int(done) not in _link.answers:
            left = end - time.monotonic()
            if left <= 0 or _link.socket is None:
                return False
            _link.receive(left)
        return _link.answers.pop(int(done))


def status(text: str) -> None:
    """A text for people, in the log."""
    _link.send({"STATUS": text.replace("\n", " ")[:100]})


def result(name: str, value: float) -> bool:
    """A number that the evaluation of a checkpoint has found; rank 0 of a job of kind "eval" only. The last of a name counts.
    Returns whether it was sent."""
    return _link.send({"RESULT": "%s=%r" % (name, float(value))}, timeout=60)


def artifact(name: str, uri: str) -> bool:
    """A file that the evaluation of a checkpoint has made, such as a grid of images; as result()."""
    return _link.send({"ARTIFACT": "%s=%s" % (name, uri)}, timeout=60)


def watchdog() -> None:
    """The program is alive, although it neither prints nor reports a step (exec.silence_s)."""
    _link.send({"WATCHDOG": 1})


def stacks(number: int = signal.SIGUSR1) -> None:
    """If this program hangs, it prints the stacks of its threads before it is killed, and the incident names the innermost
    frame. Call it in the main process, before its first step; the signal must be one that the program does not use."""
    if active():
        faulthandler.register(number, file=sys.__stderr__, all_threads=True)
        _link.send({"STACKS": signal.Signals(number).name}, timeout=5)


def extend(seconds: float) -> None:
    """Leaving takes so much longer, from now on."""
    _link.send({"EXTEND": max(0, int(seconds + 0.999))}, timeout=5)


def finished() -> None:
    """The job has reached its end: when the ranks have left, it has succeeded."""
    _link.send({"FINISHED": 1}, timeout=5)


def leaving() -> Optional[float]:
    """The seconds that are left to save and end, or None: nobody asks this program to leave.

    From the first call on this program gets no exec.leave_signal.
    """
    if not _link.polls:
        _link.polls = _link.send({"POLLS": 1})
    _link.receive()
    return None if _link.leave_at is None else max(0.0, _link.leave_at - time.monotonic())


def save_requested() -> bool:
    """Whether a person has asked for a checkpoint since the last call that returned True."""
    _link.receive()
    with _link.lock:
        save, _link.save = _link.save, False
    return save


def resume() -> Optional[Tuple[str, int]]:
    """URI and step of the checkpoint to go on from; None: the job begins."""
    uri = os.environ.get("SDTRAIN_CHECKPOINT")
    return (uri, int(os.environ["SDTRAIN_STEP"])) if uri else None
