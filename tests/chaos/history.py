# SPDX-License-Identifier: Apache-2.0
"""The whole history of a cluster, read from etcd, and what must hold all through it (docs/internals/architecture.md, "Invariants")."""
import base64
import json
import subprocess
import time

from machines import PREFIX


def read(cluster, timeout=60):
    """[(revision, key behind the prefix, record or None for a deletion)] from the first revision to now."""
    marker = "/sdtrain-history-end"
    cluster.etcdctl("put", marker, "x")
    command = cluster.network.inside("admin") + ["etcdctl", "--endpoints", cluster.etcd, "watch", "--prefix", "/sdtrain",
                                                 "--rev", "1", "-w", "json"]
    found, end = [], time.monotonic() + timeout
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        try:
            for line in watch.stdout:
                for event in json.loads(line).get("Events", []):
                    kv = event["kv"]
                    key = base64.b64decode(kv["key"]).decode()
                    if key == marker:
                        return found
                    value = base64.b64decode(kv.get("value", "")).decode()
                    record = json.loads(value) if value.startswith("{") else value
                    found.append((kv["mod_revision"], key[len(PREFIX):], None if event.get("type") else record))
                if time.monotonic() > end:
                    break
        finally:
            watch.kill()
    raise AssertionError("the history could not be read to its end")


class Checker:
    """Walks through a history once. Says what is wrong in `wrong`, and what there was in its counters."""

    def __init__(self, history):
        self.wrong = []
        self.now = {}        # key -> record, at the revision being looked at
        self.worlds = 0
        self.committed = {}  # job -> (step, generation) of the newest commit
        revision, batch = 0, []
        for rev, key, record in history + [(None, "", None)]:
            if rev != revision and batch:
                self._transaction(revision, batch)
                batch = []
            revision = rev
            batch.append((key, record))

    def _say(self, revision, text):
        self.wrong.append("revision %d: %s" % (revision, text))

    def _transaction(self, revision, batch):
        before = {key: self.now.get(key) for key, _ in batch}
        for key, record in batch:
            if record is None:
                self.now.pop(key, None)
            else:
                self.now[key] = record
        for key, record in batch:
            kind, _, name = key.partition("/")
            if kind == "worlds" and record:
                self._world(revision, name, before[key], record)
            elif kind == "checkpoints" and record:
                self._commits(revision, name, before[key] or {"commits": []}, record)
            elif kind == "phases" and record:
                self._phase(revision, name, before[key] or {}, record)

    def _world(self, revision, job, old, new):
        """I2: a generation has one world, and the next one is one more."""
        self.worlds += 1
        if new["generation"] != (old["generation"] if old else 0) + 1:
            self._say(revision, "%s: generation %d follows %s" % (job, new["generation"], old and old["generation"]))
        places = [(run["node"], slot) for run in new["runs"] for slot in run["slots"].split(",")]
        if len(places) != len(set(places)):
            self._say(revision, "%s: generation %d has a slot twice" % (job, new["generation"]))  # I6
        for run in new["runs"]:
            if self._quarantined(run["node"], lambda c: not c.get("until_usec") and not c.get("job")):
                self._say(revision, "%s: generation %d has %s, which is quarantined"
                          % (job, new["generation"], run["node"]))  # I5

    def _quarantined(self, node, by=lambda cause: True):
        return any(c["mode"] == "quarantine" and by(c) for c in self.now.get("cordons/" + node, {}).get("causes", []))

    def _commits(self, revision, job, old, new):
        """I3, I4: only the present world commits, and forward."""
        known = {(c["step"], c["generation"], c["uri"]) for c in old["commits"]}
        world = self.now.get("worlds/" + job)
        for commit in new["commits"]:
            if (commit["step"], commit["generation"], commit["uri"]) in known:
                continue
            last = self.committed.get(job, (-1, 0))
            if not world or commit["generation"] != world["generation"]:
                self._say(revision, "%s: generation %d commits step %d while %s is the world's"
                          % (job, commit["generation"], commit["step"], world and world["generation"]))
            if commit["step"] <= last[0] or commit["generation"] < last[1]:
                self._say(revision, "%s: step %d of generation %d is committed after step %d of generation %d"
                          % (job, commit["step"], commit["generation"], *last))
            self.committed[job] = (commit["step"], commit["generation"])

    def _phase(self, revision, job, old, new):
        if new["generation"] < old.get("generation", 0):
            self._say(revision, "%s: the phase goes back to generation %d" % (job, new["generation"]))
        if not new["go"] or (old.get("go") and old.get("generation") == new["generation"]):
            return
        # I3: at "go" no rank of an older generation is known to live on a node that is there
        for key, record in self.now.items():
            if not key.startswith("ranks/%s/" % job):
                continue
            _, _, generation, node = key.split("/")
            there = self.now.get("nodes/" + node)
            if int(generation) >= new["generation"] or not there or there["incarnation"] != record["incarnation"]:
                continue
            if self._quarantined(node) or self._killed(job, node, generation):
                continue
            lost = [int(s) for part in filter(None, there.get("lost_slots", "").split(","))
                    for s in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)]
            alive = [rank["rank"] for rank in record["ranks"] if rank["state"] != "exited" and rank["slot"] not in lost]
            if alive:
                self._say(revision, "%s: generation %d goes while ranks %s of generation %s live on %s"
                          % (job, new["generation"], alive, generation, node))

    def _killed(self, job, node, generation):
        """A newer report of the node says that all older ranks are dead."""
        return any(key.startswith("ranks/%s/" % job) and key.endswith("/" + node)
                   and int(key.split("/")[2]) > int(generation) and record.get("killed_usec")
                   for key, record in self.now.items())
