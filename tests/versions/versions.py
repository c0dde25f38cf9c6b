# SPDX-License-Identifier: Apache-2.0
"""The versions whose records and checkpoints this one reads, and whose programs it runs beside: tests/golden/versions.

`versions.py build` builds all of them, which ctest does once before it runs test-versions.
"""
import fcntl
import os
import re
import shutil
import subprocess
import sys

SOURCE = os.path.abspath(os.environ.get("SDTRAIN_SOURCE") or os.path.join(os.path.dirname(__file__), "../.."))
GOLDEN = os.path.join(SOURCE, "tests/golden/versions")
# The programs of each version that was built, by its commit: SDTRAIN_VERSIONS, or build/versions.
CACHE = os.path.realpath(os.environ.get("SDTRAIN_VERSIONS") or os.path.join(SOURCE, "build/versions"))
TARGETS = ("sdtraind", "sdtrainer", "sdctl", "sdcontroller", "version-fields")


class Lacking(Exception):
    """Why a version's programs cannot be built here."""


def listed():
    """[(version, commit)], the oldest first."""
    with open(os.path.join(GOLDEN, "versions")) as file:
        lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
    for version, commit in lines:
        if not re.fullmatch("[0-9a-f]{40}", commit):
            raise ValueError("tests/golden/versions/versions: %s: %s is not a commit" % (version, commit))
    return [tuple(line) for line in lines]


def folder_of(commit):
    return os.path.join(CACHE, commit[:12])


def _git(*arguments, **options):
    return subprocess.run(["git", "-c", "safe.directory=*", "-C", SOURCE, *arguments], stderr=subprocess.PIPE, **options)


def _run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise RuntimeError("%s exits %d:\n%s" % (" ".join(command), done.returncode, done.stdout[-6000:]))


def _settings():
    """The outer build's compilers, and ccache where it has it."""
    cache = os.path.join(os.environ.get("SDTRAIN_BIN") or os.path.join(SOURCE, "build/release/bin"), "../CMakeCache.txt")
    found = []
    if os.path.exists(cache):
        with open(cache) as file:
            found = re.findall(r"^(CMAKE_(?:C|CXX)_COMPILER(?:_LAUNCHER)?):[A-Z]+=(.+)$", file.read(), re.M)
    return ["-D%s=%s" % pair for pair in found]


def build(commit):
    """The folder with that commit's programs, which are built the first time. Lacking: the commit is not there."""
    folder = folder_of(commit)
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(CACHE, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(os.path.join(folder, "built")):
            return os.path.join(folder, "build/bin")
        if not shutil.which("git") or _git("cat-file", "-e", commit + "^{commit}").returncode != 0:
            raise Lacking("the history here does not hold commit %s (a tarball, or a shallow clone: "
                          "git fetch --unshallow)" % commit[:12])
        shutil.rmtree(folder, ignore_errors=True)  # of a build that was broken off
        os.makedirs(os.path.join(folder, "source"))
        archive = _git("archive", commit, stdout=subprocess.PIPE)
        if archive.returncode != 0:
            raise RuntimeError("git archive %s: %s" % (commit, archive.stderr.decode(errors="replace")))
        subprocess.run(["tar", "-x", "-C", os.path.join(folder, "source")], input=archive.stdout, check=True)
        _run("cmake", "-G", "Ninja", "-S", os.path.join(folder, "source"), "-B", os.path.join(folder, "build"),
             "-DCMAKE_BUILD_TYPE=Release", *_settings())
        _run("cmake", "--build", os.path.join(folder, "build"), "-j2", "--target", *TARGETS)
        with open(os.path.join(folder, "built"), "w") as file:
            file.write(commit + "\n")
        return os.path.join(folder, "build/bin")


def main():
    for version, commit in listed():
        try:
            print("%s: %s" % (version, build(commit)))
        except Lacking as e:
            print("%s: not built: %s" % (version, e))  # test-versions is skipped for that


if __name__ == "__main__":
    if sys.argv[1:] != ["build"]:
        sys.exit("usage: versions.py build")
    main()
