# SPDX-License-Identifier: Apache-2.0
"""The whole history of a cluster in etcd, recorded while a test runs, and judged at its end by check-history.

A child, etcdctl, watches from the first revision on and writes what it sees into a file. It rides out restarts of etcd; without
a quorum it ends, and another goes on behind what was seen. Where etcd no longer has what comes next, the recorder gives
up; a restored etcd shows as another cluster id, or as versions of a record that do not follow each other. Either way the
file says so.
"""
import base64
import json
import os
import shutil
import subprocess
import threading
import time

BIN = os.environ.get("SDTRAIN_BIN") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/release/bin")
KEPT = os.path.join(BIN, "../histories")


class NotWhole(AssertionError):
    """The history has an end that is none."""


class Recorder:
    def __init__(self, path, cluster, endpoints, inside=(), environment=None):
        """endpoints: etcd's, as etcdctl takes them. inside: the command in front, where etcd is in another network."""
        self.path, self.cluster = path, cluster
        self.environment = dict(environment or os.environ, ETCDCTL_API="3")
        # The key behind the last one of the prefix is the recorder's own: it tells that all before it was seen.
        self.marker = "/sdtrain/%s0" % cluster
        self.command = [*inside, "etcdctl", "--endpoints", endpoints]
        self.ended, self.gave_up = False, None
        with open(path, "wb"):
            pass
        self._watch(1)
        self.keeper = threading.Thread(target=self._keep, daemon=True)
        self.keeper.start()

    def _watch(self, revision):
        with open(self.path, "ab") as file, open(self.path + ".log", "wb") as log:
            self.watch = subprocess.Popen(
                self.command + ["watch", "--rev", str(revision), "-w", "json", "/sdtrain/%s/" % self.cluster, self.marker + "!"],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=log)

    def _keep(self):
        """Goes on behind what was seen, for as long as somebody wants the history."""
        while not self.ended:
            self.watch.wait()
            with open(self.path + ".log", encoding="utf-8", errors="replace") as log:
                why = log.read().strip()[-300:]
            if "compacted" in why:
                self.gave_up = "the watch has ended: " + why
                return
            time.sleep(0.2)
            self._cut()
            if not self.ended:
                self._watch(self._seen() + 1)

    def _cut(self):
        """Takes away a line that its writer's death has cut off: the next one writes it whole."""
        with open(self.path, "rb+") as file:
            text = file.read()
            file.truncate(text.rfind(b"\n") + 1)

    def _seen(self):
        """The newest revision in the file. All of a revision is in one line."""
        with open(self.path, "rb") as file:
            for line in reversed(file.readlines()):
                events = json.loads(line).get("Events") if line.endswith(b"\n") else None
                if events:
                    return max(event["kv"]["mod_revision"] for event in events)
        return 0

    def _put_marker(self, seconds):
        done = subprocess.run(self.command + ["put", self.marker, "end", "--command-timeout=%ds" % seconds],
                              env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL, check=False, timeout=seconds + 30)
        return done.returncode == 0

    def _sees_marker(self):
        mark = ('"key":"%s"' % base64.b64encode(self.marker.encode()).decode()).encode()
        with open(self.path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - (1 << 20)))
            return mark in file.read()

    def finish(self, timeout=60):
        """Waits until all that etcd has now is recorded. Returns None, or why that cannot be."""
        if self.ended:
            return None
        why, end, wrote = None, time.monotonic() + timeout, False
        while why is None:
            why = self.gave_up
            if why:
                break
            wrote = wrote or self._put_marker(5)
            if wrote and self._sees_marker():
                break
            if time.monotonic() > end:
                why = "the end was not seen within %d s" % timeout if wrote else "etcd does not answer"
            time.sleep(0.02)
        self.stop()
        with open(self.path, "ab") as file:
            said = {"history": "broken", "why": why} if why else {"history": "complete"}
            file.write((json.dumps(said) + "\n").encode())
        return why

    def stop(self):
        """Ends the watch; what it has written stays."""
        self.ended = True
        while self.keeper.is_alive():
            if self.watch.poll() is None:
                self.watch.kill()
            self.keeper.join(0.1)


def check(path, settled=False, keep_as=None):
    """(exit code, text) of check-history. A history that does not pass is kept."""
    done = subprocess.run([os.path.join(BIN, "check-history"), *(["--settled"] if settled else []), path], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    text = done.stdout
    if done.returncode != 0 and keep_as:
        os.makedirs(KEPT, exist_ok=True)
        kept = os.path.join(KEPT, keep_as + ".jsonl")
        shutil.copy(path, kept)
        text += "the history is kept: check-history %s\n" % os.path.abspath(kept)
    return done.returncode, text


def judge(recorder, name, settled=False, timeout=60):
    """Ends the recording. Raises with what is broken; returns check-history's last line otherwise."""
    why = recorder.finish(timeout)
    code, text = check(recorder.path, settled and why is None, name)
    if code == 3 or (code == 0 and why):
        raise NotWhole("the history of %s is not whole: %s\n%s" % (name, why, text))
    if code != 0:
        raise AssertionError("the history of %s breaks what it must keep:\n%s" % (name, text))
    return text.splitlines()[-1]
