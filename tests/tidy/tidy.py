#!/usr/bin/env python3
"""The house rules that a machine can check: the include law, headers' labels, sizes, names, form.

usage: tidy.py SOURCE-ROOT [BUILD-FOLDER]
With a build folder it also checks that the pure modules' objects refer to nothing but mem* and __assert_fail.
Prints one line for each break of a rule and exits 1 if there is any.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
BUILD = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None

# folder -> folders whose headers it may include (itself always). docs/internals/architecture.md, "The include law".
LAW = {
    "base": [],
    "etcd": ["base"],
    "store": ["base"],
    "kernels": ["base"],
    "health": ["base"],
    "metrics": ["base"],
    "trainer/api": ["base"],
    "cluster": ["base", "etcd", "store", "health", "trainer/api"],
    "controller/core": ["base", "cluster", "trainer/api"],
    "controller": ["base", "etcd", "cluster", "controller/core", "metrics", "trainer/api"],
    "daemon": ["base", "etcd", "cluster", "health", "metrics", "trainer/api"],
    "ctl": ["base", "etcd", "store", "cluster", "controller", "controller/core", "trainer/api", "trainer/data",
            "trainer/plan"],
    "trainer/comm": ["base", "trainer/api"],
    "trainer/data": ["base", "store", "trainer/api", "kernels"],
    "trainer/nn": ["base", "kernels", "store", "trainer/api"],
    "trainer/state": ["base", "kernels", "store", "trainer/api", "trainer/comm", "trainer/nn"],
    "trainer/plan": ["base", "kernels", "trainer/api", "trainer/nn", "trainer/state"],
    "trainer": ["base", "kernels", "store", "trainer/api", "trainer/comm", "trainer/data", "trainer/nn",
                "trainer/plan", "trainer/state"],
    "tests": ["*"],
}
PURE = {"order.c.o": "trainer/data", "controller/core": "controller/core", "verdict.c.o": "health", "fault.c.o": "health"}
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
        path = ROOT / name
        if name and path.is_file() and path.suffix in (".c", ".h", ".cc"):
            yield path


def home_of(path):
    folder = path.relative_to(ROOT).parent.as_posix()
    while folder and folder not in LAW:
        folder = folder.rpartition("/")[0]
    return folder


def check_includes(path, lines):
    home = home_of(path)
    test_only = path.name.startswith(("test", "fuzz-", "bench-"))
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
        if there == home or "*" in LAW.get(home, []) or there in LAW.get(home, []):
            continue
        if test_only and there in ("etcd", "controller", "daemon"):
            continue  # test fixtures
        complain(path, number, f"{home}/ may not include {match.group(1)}")


def check_header(path, text):
    if "#pragma once" not in text:
        complain(path, 1, "no #pragma once")
    head = text[: text.find("*/")]
    first = text.splitlines()[0] if text else ""
    if not first.startswith(f"/* {path.name} - "):
        complain(path, 1, f'must begin with "/* {path.name} - what it is."')
    for label in LABELS:
        if f"\n * {label}" not in head:
            complain(path, 1, f"the opening comment lacks a line that begins with {label}")


def check_form(path, lines):
    if path.stem in BAD_NAMES:
        complain(path, 1, "a name that says nothing")
    if len(lines) > 700:
        complain(path, len(lines), f"{len(lines)} lines: a room too many things live in")
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
    for build_object in BUILD.rglob("*.o"):
        name = build_object.relative_to(BUILD).as_posix()
        if "test" in name or build_object.name == "replay.c.o":
            continue
        pure = any((key in name if "/" in key else build_object.name == key) and folder in name
                   for key, folder in PURE.items())
        if not pure:
            continue
        out = subprocess.run(["nm", "-u", str(build_object)], capture_output=True, text=True, check=True).stdout
        own = set()
        for sibling in build_object.parent.rglob("*.o"):
            defined = subprocess.run(["nm", "--defined-only", str(sibling)], capture_output=True, text=True).stdout
            own |= {line.split()[-1] for line in defined.splitlines() if line.split()}
        for line in out.splitlines():
            symbol = line.split()[-1]
            if symbol in own or symbol.startswith("mem") or symbol in ("__assert_fail", "__stack_chk_fail"):
                continue
            problems.append(f"{name}: not pure: refers to {symbol}")


def check_format(files):
    if not shutil.which("clang-format"):
        problems.append("clang-format is missing: ops/packages test installs it")
        return
    out = subprocess.run(["clang-format", "--dry-run", "-Werror", *map(str, files)], capture_output=True, text=True)
    if out.returncode != 0:
        names = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", out.stderr, re.M)))
        problems.extend(f"{name}: clang-format -i was not run" for name in names)


def main():
    files = list(tracked())
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
    for problem in problems:
        print(problem)
    print(f"tidy: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
