#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house rules that a machine can check: the include law, headers' labels, sizes, names, form.

usage: tidy.py SOURCE-ROOT [BUILD-FOLDER] [-- FILE...]
All sources that git knows, or these files below SOURCE-ROOT.
With a build folder it also has purity.sh look at what the libraries refer to, and ctest's list at the tests.
Prints one line for each break of a rule and exits 1 if there is any.
"""
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys

WORDS, FILES = sys.argv[1:], []
if "--" in WORDS:
    WORDS, FILES = WORDS[: WORDS.index("--")], WORDS[WORDS.index("--") + 1 :]
ROOT = pathlib.Path(WORDS[0]).resolve()
BUILD = pathlib.Path(WORDS[1]).resolve() if len(WORDS) > 1 else None

ONLY_WITH_NVCC = ("test-gpu-bundle.py", "test-ptxas.py")

# folder -> folders whose headers it may include (itself always). docs/internals/architecture.md, "The include law".
LAW = {
    "base": [],
    "protocol": ["base"],
    "etcd": ["base"],
    "etcd/grpc": ["base", "etcd"],
    "kernels": ["base"],
    "health": ["base"],
    "metrics": ["base"],
    "data/mds": ["base", "store"],
    "data/index": ["base", "data/mds"],
    "data/stream": ["base", "store", "data/mds", "data/index"],
    "data": ["base", "store", "protocol", "data/mds", "data/index", "data/stream"],
    "nn": ["base", "kernels", "protocol"],
    "nn/weights": ["base", "store", "protocol", "nn"],
    "manifest": ["base", "store", "protocol", "nn"],
    "encoders": ["base"],
    "encoders/pictures": ["base"],
    "encoders/tokenizer": ["base"],
    "encoders/networks": ["base", "store", "kernels", "encoders/tokenizer", "nn", "nn/weights"],
    "store": ["base"],
    "store/s3/settings": ["base"],
    "store/s3/credentials": ["base", "store/s3/settings"],
    "store/s3/protocol": ["base", "store", "store/s3/credentials"],
    "store/s3/client": ["base", "store/s3/settings", "store/s3/credentials", "store/s3/protocol"],
    "store/s3": ["base", "store", "store/s3/settings", "store/s3/credentials", "store/s3/protocol", "store/s3/client"],
    "cluster": ["base", "protocol"],
    "report": ["base", "cluster", "protocol"],
    "controller/core": ["base", "cluster", "protocol"],
    "controller/core/notifier": ["base", "cluster", "controller/core"],
    "controller/feed": ["base", "cluster", "controller/core", "protocol"],
    "controller/journal": ["base", "cluster", "controller/core", "controller/feed"],
    "controller/rights": ["base", "etcd", "cluster"],
    "controller/leader": ["base", "etcd", "cluster", "controller/core", "controller/feed", "controller/journal",
                          "controller/rights"],
    "controller/config": ["base", "etcd", "cluster", "controller/core", "metrics", "protocol"],
    "controller/alerting": ["base", "etcd", "cluster", "controller/core", "controller/core/notifier", "controller/feed",
                            "controller/rights"],
    "controller": ["base", "etcd", "cluster", "controller/core", "controller/leader", "controller/journal",
                   "controller/alerting", "controller/config", "metrics", "report"],
    "daemon/loop": ["base"],
    "daemon/config": ["base", "cluster", "health", "metrics"],
    "daemon/process": ["base", "cluster"],
    "daemon/world": ["base", "etcd", "cluster", "protocol", "daemon/config", "daemon/loop", "daemon/process"],
    "daemon/health": ["base", "etcd", "cluster", "health", "daemon/config", "daemon/loop", "daemon/process",
                      "daemon/world"],
    "daemon/node": ["base", "etcd", "cluster", "protocol", "daemon/config", "daemon/loop", "daemon/process",
                    "daemon/world"],
    "daemon": ["base", "etcd", "cluster", "health", "metrics", "protocol", "daemon/config", "daemon/health",
               "daemon/loop", "daemon/node", "daemon/process", "daemon/world"],
    "trainer/comm": ["base"],
    "trainer/state": ["base", "kernels", "protocol", "nn", "manifest", "trainer/comm"],
    "trainer/begin": ["base", "kernels", "store", "protocol", "nn", "nn/weights", "manifest"],
    "trainer/plan": ["base", "kernels", "protocol", "nn", "manifest"],
    "trainer/checkpoint": ["base", "store", "protocol", "trainer/comm", "nn", "trainer/state",
                           "manifest"],
    "trainer/checkpoint/restore": ["base", "store", "protocol", "nn", "manifest", "trainer/comm", "trainer/state", "trainer/checkpoint"],
    "trainer/sample": ["base", "kernels", "store", "encoders", "encoders/networks", "encoders/tokenizer", "protocol",
                       "data", "nn", "trainer/checkpoint", "manifest"],
    "trainer/link": ["base", "protocol"],
    "trainer/session": ["base", "kernels", "store", "protocol", "nn", "nn/weights", "data", "manifest", "trainer/begin", "trainer/comm",
                        "trainer/link", "trainer/plan", "trainer/state", "trainer/checkpoint"],
    "trainer": ["base", "kernels", "store", "protocol", "data", "data/mds", "nn", "nn/weights", "manifest", "trainer/begin", "trainer/comm",
                "trainer/link", "trainer/plan", "trainer/sample", "trainer/session", "trainer/state", "trainer/checkpoint"],
    "prep/raw": ["base", "store", "protocol", "data/mds", "data/index", "data/stream"],
    "prep/encode": ["base", "store", "kernels", "protocol", "encoders/networks", "encoders/pictures",
                    "encoders/tokenizer", "prep/raw", "data", "data/mds"],
    "prep": ["base", "store", "protocol", "encoders", "prep/raw", "prep/encode", "data", "data/mds",
             "data/stream"],
    "ctl": ["base", "etcd", "store", "cluster", "report", "controller/feed", "controller/journal", "controller/rights", "protocol",
            "encoders/networks", "trainer/begin", "data", "trainer/plan", "manifest"],
    "tests": ["*"],
}
LABELS = ("Ownership:", "Units:", "Errors:", "Threads:")
BAD_NAMES = ("util", "utils", "common", "helper", "helpers", "misc")
BAD_WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
UNSAFE = re.compile(r"(?<![A-Za-z0-9_])(strcpy|strcat|sprintf|gets|strtok|alloca)\s*\(")

problems = []


def complain(path, line, text):
    problems.append(f"{path.relative_to(ROOT)}:{line}: {text}")


def tracked():
    out = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True).stdout
    for name in out.decode().split("\0"):
        if name.startswith("-"):
            problems.append(f"{name}: a file that an option was taken for")
        path = ROOT / name
        if name and path.is_file() and path.suffix in (".c", ".h", ".cc"):
            yield path


def home_of(path):
    """The folder of LAW that it lies in; "test" for what lies in a module's test/, which may include anything."""
    folder = path.relative_to(ROOT).parent
    if "test" in folder.parts:
        return "test"
    folder = folder.as_posix()
    while folder and folder not in LAW:
        folder = folder.rpartition("/")[0]
    return folder


def check_includes(path, lines):
    home = home_of(path)
    for number, line in enumerate(lines, 1):
        match = re.match(r'#include "([^"]+)"', line)
        if not match:
            continue
        target = ROOT / match.group(1)
        if not target.exists():
            if "/" in match.group(1):
                complain(path, number, f"includes {match.group(1)}, which does not exist")
            continue
        there = home_of(target)
        if home == "test" or there == home or "*" in LAW.get(home, []) or there in LAW.get(home, []):
            continue
        complain(path, number, f"{home}/ may not include {match.group(1)}")


def check_header(path, text):
    if "#pragma once" not in text:
        complain(path, 1, "no #pragma once")
    head = text[: text.find("*/", len(SPDX))]
    first = text.splitlines()[1] if text.count("\n") > 1 else ""
    if not first.startswith(f"/* {path.name} - "):
        complain(path, 1, f'must begin with "/* {path.name} - what it is."')
    for label in LABELS:
        if f"\n * {label}" not in head:
            complain(path, 1, f"the opening comment lacks a line that begins with {label}")


SPDX = "/* SPDX-License-Identifier: Apache-2.0 */"


def check_form(path, lines):
    if not lines or lines[0] != SPDX:
        complain(path, 1, f"must begin with {SPDX}")
    if path.stem in BAD_NAMES:
        complain(path, 1, "a name that says nothing")
    if len(lines) > 701:
        complain(path, len(lines), f"{len(lines) - 1} lines: a room too many things live in")
    for number, line in enumerate(lines, 1):
        if len(line) > 120:
            complain(path, number, f"{len(line)} columns")
        if BAD_WORDS.search(line):
            complain(path, number, "something was left open")
        if UNSAFE.search(line) and not line.lstrip().startswith(("/*", "*")):
            complain(path, number, "an unsafe call")
        if "\t" in line:
            complain(path, number, "a tab")


def check_functions(path, lines):
    """A function body begins with '{' in column 0 and ends with '}' there."""
    begin = None
    for number, line in enumerate(lines, 1):
        if line.rstrip() == "{":
            begin = number
        elif line.rstrip() == "}" and begin is not None:
            if number - begin > (120 if path.name.startswith("test") else 90):
                complain(path, begin, f"a function of {number - begin} lines")
            begin = None


def check_purity():
    """The libraries that CMake's sdtrain_pure() and, behind --, sdtrain_apart() named."""
    libraries = (BUILD / "pure-libraries").read_text().split()
    out = subprocess.run([ROOT / "tests/tidy/purity.sh", *libraries], stderr=subprocess.PIPE, text=True)
    problems.extend(out.stderr.splitlines())


def check_tests():
    """Of two tests of one name ctest runs both under it; a script that it does not know, it never runs."""
    shown = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    tests = json.loads(shown.stdout)["tests"]
    names = collections.Counter(test["name"] for test in tests)
    problems.extend(f"ctest: {n} tests are called {name}" for name, n in names.items() if n > 1)
    cache = (BUILD / "CMakeCache.txt").read_text()
    if not re.search("^SDTRAIN_SANITIZE:STRING=$", cache, re.M):
        return  # some are not for sanitizers
    run = {word for test in tests for word in test.get("command", [])}
    for name in subprocess.run(["git", "-C", ROOT, "ls-files", "tests"], capture_output=True, text=True).stdout.split():
        if re.search(r"/test-[^/]*\.py$", name) and str(ROOT / name) not in run and not name.endswith(ONLY_WITH_NVCC):
            problems.append(f"{name}: ctest does not know it")


def check_format(files):
    if not shutil.which("clang-format"):
        if FILES:
            return  # before a commit: whoever has it looks later
        problems.append("clang-format is missing: ops/packages test installs it")
        return
    out = subprocess.run(["clang-format", "--dry-run", "-Werror", *map(str, files)], capture_output=True, text=True)
    if out.returncode != 0:
        names = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", out.stderr, re.M)))
        problems.extend(f"{name.removeprefix(f'{ROOT}/')}: clang-format -i was not run" for name in names)


def main():
    files = [ROOT / name for name in FILES] or list(tracked())
    for path in files:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        check_includes(path, lines)
        check_form(path, lines)
        if path.suffix == ".h":
            check_header(path, text)
        else:
            check_functions(path, lines)
    check_format(files)
    if BUILD:
        check_purity()
        check_tests()
    for problem in problems:
        print(problem)
    print(f"tidy: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
