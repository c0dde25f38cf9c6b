# SPDX-License-Identifier: Apache-2.0
"""A disk that fails: runs of a program of which one call on a folder fails, and what of that folder a machine without power
would find again, by the promises of POSIX alone. A file's bytes are there when it was synced, a name when its folder was synced
after the name was given. failing-disk.c counts the calls and writes them down."""
import collections
import json
import os
import re
import shutil

from lab import BIN

LIBRARY = os.path.abspath(os.path.join(BIN, "failing-disk.so"))
SERIALS = 1000000  # of open files, for each life

Call = collections.namedtuple("Call", "life number name error serial path second")


class Node:
    """A file or folder. clean: its bytes are on the disk. copy: another name of the file, outside of the folder."""

    def __init__(self, copy=None, clean=False, folder=False):
        self.copy, self.clean, self.folder = copy, clean, folder


class Disk:
    def __init__(self, lab, name, folder):
        """The folder is there, and all that lies in it is on the disk."""
        self.lab, self.folder, self.lives = lab, folder, 0
        self.where = lab.path("disks", name)
        self.copies = os.path.join(self.where, "copies")
        os.makedirs(self.copies)
        self.log = os.path.join(self.where, "log")

    def environment(self, strike=None):
        """The environment of the next life. strike: (number of a call, errno or "kill"); a number with "+": all later calls on its path, too."""
        self.lives += 1
        with open(self.log, "a") as file:
            file.write("\nlife %d\n" % self.lives)  # a life that was killed may have left half a line
        found = dict(DISK_ROOT=self.folder, DISK_LOG=self.log, DISK_COPIES=self.copies,
                     DISK_SERIAL=str(self.lives * SERIALS), LD_PRELOAD=LIBRARY)
        return dict(found, DISK_STRIKE="%s:%s" % strike) if strike else found

    def calls(self, life=None):
        found, number = [], 0
        with open(self.log) as file:
            for line in file:
                if line.startswith("life "):
                    number = int(line.split()[1])
                    continue
                fields = line.rstrip("\n").split("\t")
                if len(fields) == len(Call._fields) - 1 and line.endswith("\n"):
                    at, name, error, serial, path, second = fields
                    found.append(Call(number, int(at), name, int(error), int(serial), path, second))
        return [call for call in found if life in (None, call.life)]

    def replay(self, judge=None):
        """(what is there, what is on the disk), each by paths; judge(model, call) is asked after each name that is given."""
        model = Model(self)
        for call in self.calls():
            model.take(call)
            if judge and call.name in ("link", "rename") and call.error == 0:
                judge(model, call)
        return model

    def forget(self):
        """The machine loses its power: the folder is what was synced. Returns the paths that are gone or older now."""
        model = self.replay()
        lost = []
        for path in sorted(set(model.there) | set(model.synced), key=lambda path: path.count("/"), reverse=True):
            node, kept = model.there.get(path), model.synced.get(path)
            if node is kept and (node.clean or node.folder):
                continue
            lost.append(os.path.relpath(path, self.folder))
            if node and node is not kept:
                (shutil.rmtree if node.folder else os.remove)(path)
        for path in sorted(model.synced, key=lambda path: path.count("/")):
            kept = model.synced[path]
            if not model.on_disk(os.path.dirname(path)):
                continue
            if kept.folder:
                os.makedirs(path, exist_ok=True)
            elif kept is not model.there.get(path):
                os.link(kept.copy, path)
            if not kept.folder and not kept.clean:
                os.truncate(path, 0)
        with open(self.log, "w"):
            pass  # a new story: all that is there is on the disk
        return lost


class Model:
    """Files that were there before the first call are on the disk, and known once a call names them."""

    def __init__(self, disk):
        self.disk = disk
        self.there, self.synced, self.opened, self.gone = {}, {}, {}, set()

    def node(self, path):
        """A path that no call has made was there."""
        if path not in self.there and path not in self.gone:
            self.there[path] = self.synced[path] = Node(clean=True)
        return self.there.get(path)

    def give(self, path, node):
        self.gone.discard(path)
        self.there[path] = node

    def take(self, call):
        at = (call.life, call.serial)
        if call.error:
            return
        if call.name == "create":
            self.give(call.path, Node(copy=os.path.join(self.disk.copies, str(call.serial))))
            self.opened[at] = self.there[call.path]
        elif call.name == "open":
            self.opened[at] = self.node(call.path)
        elif call.name in ("write", "pwrite", "ftruncate", "fallocate"):
            self.opened[at].clean = False
        elif call.name in ("fsync", "fdatasync"):
            if at in self.opened:
                self.opened[at].clean = True
            else:
                self.sync_folder(call.path)
        elif call.name == "mkdir":
            self.give(call.path, Node(folder=True))
        elif call.name in ("unlink", "rmdir"):
            self.remove(call.path, call)
        elif call.name == "link":
            self.give(call.second, self.node(call.path))
        elif call.name == "rename":
            node = self.node(call.path)
            if call.second in self.there or os.path.exists(self.copy_of_gone(call)):
                self.remove(call.second, call)
            self.give(call.second, node)
            del self.there[call.path]
            self.gone.add(call.path)

    def copy_of_gone(self, call):
        return os.path.join(self.disk.copies, "%d.gone" % (call.life * SERIALS + call.number))

    def remove(self, path, call):
        node = self.node(path)
        if not node.folder and not node.copy:
            node.copy = self.copy_of_gone(call)
        del self.there[path]
        self.gone.add(path)

    def sync_folder(self, folder):
        for names in (self.there, self.synced):
            for path in [path for path in names if os.path.dirname(path) == folder]:
                if path in self.there:
                    self.synced[path] = self.there[path]
                else:
                    del self.synced[path]

    def on_disk(self, path):
        """The name, and those of all folders on the way to it."""
        while len(path) > len(self.disk.folder):
            if path in self.gone or self.synced.get(path) is not self.there.get(path):
                return False
            path = os.path.dirname(path)
        return True

    def why_not(self, path):
        """Says which part of the file would be lost; None: nothing."""
        node = self.node(path)
        if not node:
            return "%s is not there" % path
        if not node.folder and not node.clean:
            return "the bytes of %s are not synced" % path
        return None if self.on_disk(path) else "the name %s, or one on the way to it, is not synced" % path

    def content(self, call):
        """The file that got a name, as it was then."""
        node = self.there[call.second]
        with open(node.copy) as file:
            return json.load(file)


def named_by(model, call):
    """The paths that must be on the disk when this file gets its name."""
    folder, name = os.path.split(call.second)
    where = os.path.dirname(folder)
    if name == "manifest.json":
        manifest = model.content(call)
        metrics = [os.path.join(where, s["key"]) for s in manifest["metrics"]]
        # Those that the store has refused come later.
        return [os.path.join(folder, o["key"]) for o in manifest["objects"]] + [key for key in metrics if model.node(key)]
    if re.fullmatch(r"u\d+-p\d+\.json", name):
        file = model.content(call)["file"]["name"]
        return [os.path.join(where, file)] if file else []
    if re.fullmatch(r"u\d+\.json", name):
        report = model.content(call)
        return ([os.path.join(where, file["name"]) for file in report["files"]] +
                ([os.path.join(where, "rejects", name + "l")] if report["rejected"] else []))
    if name == "encoder.json":
        return [os.path.join(folder, file) for file in model.content(call)["files"] if file != "index.json"]
    if name == "index.json":
        return ([os.path.join(folder, shard["raw_data"]["basename"]) for shard in model.content(call)["shards"]] +
                [os.path.join(folder, file) for file in ("encoder.json", "empty.npy", "index.sdtrain")])
    return None


def unsafe(disk):
    """Lists the objects that a file named before they were on the disk; [] is right."""
    found = []

    def judge(model, call):
        for path in named_by(model, call) or []:
            why = model.why_not(path)
            if why:
                found.append("%s, call %d: %s" % (os.path.relpath(call.second, disk.folder), call.number, why))
    disk.replay(judge)
    return found
