# SPDX-License-Identifier: Apache-2.0
"""File systems of a test's own: one that can be frozen under a program's feet, one that fills up."""
import os
import subprocess

from network import run


def make(lab, name, megabytes):
    """A folder on an ext4 of its own in a sparse file; None where there are no loop devices."""
    image, folder = lab.path(name + ".img"), lab.path(name)
    with open(image, "wb") as file:
        file.truncate(megabytes << 20)
    run("mkfs.ext4", "-q", image)
    os.makedirs(folder)
    if subprocess.run(["mount", "-o", "loop", image, folder], stderr=subprocess.DEVNULL).returncode != 0:
        return None
    lab.undo("umount", folder)
    lab.undo("sh", "-c", "fsfreeze -u '%s'; false" % folder)
    return folder


def make_small(lab, name, megabytes):
    folder = lab.path(name)
    os.makedirs(folder)
    run("mount", "-t", "tmpfs", "-o", "size=%dm" % megabytes, "tmpfs", folder)
    lab.undo("umount", folder)
    return folder


def freeze(folder):
    run("fsfreeze", "-f", folder)


def thaw(folder):
    run("fsfreeze", "-u", folder)


def fill(folder):
    """To the last byte, also of what has been freed since."""
    with open(os.path.join(folder, "ballast"), "ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


def empty(folder):
    os.unlink(os.path.join(folder, "ballast"))
