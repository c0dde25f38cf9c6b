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

import english

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "ops"))
import mutants_operators  # noqa: E402
import mutants_plant  # noqa: E402

WORDS, FILES = sys.argv[1:], []
if "--" in WORDS:
    WORDS, FILES = WORDS[: WORDS.index("--")], WORDS[WORDS.index("--") + 1 :]
ROOT = pathlib.Path(WORDS[0]).resolve()
BUILD = pathlib.Path(WORDS[1]).resolve() if len(WORDS) > 1 else None

ONLY_WITH_NVCC = ("test-gpu-bundle.py", "test-gpu-calls.py", "test-ptxas.py")

# folder -> folders whose headers it may include (itself always), each of a row above: no folders include each other in a
# circle. docs/internals/architecture.md, "The include law".
LAW = {
    "base": [],
    "protocol": ["base"],
    "etcd": ["base"],
    "etcd/grpc": ["base", "etcd"],
    "store": ["base"],
    "store/s3/settings": ["base"],
    "store/s3/credentials": ["base", "store/s3/settings"],
    "store/s3/protocol": ["base", "store", "store/s3/credentials"],
    "store/s3/client": ["base", "store/s3/settings", "store/s3/protocol"],
    "store/s3": ["base", "store", "store/s3/client"],
    "kernels": ["base"],
    "health": ["base"],
    "metrics": ["base"],
    "nn": ["base", "protocol", "kernels"],
    "nn/weights": ["store", "nn"],
    "data/mds": ["base", "store"],
    "data/index": ["base", "data/mds"],
    "data/stream": ["base", "store", "data/mds", "data/index"],
    "data": ["base", "protocol", "store", "data/mds", "data/index", "data/stream"],
    "cluster": ["base", "protocol"],
    "manifest": ["base", "protocol", "store", "nn"],
    "encoders": ["base"],
    "encoders/pictures": ["base"],
    "encoders/tokenizer": ["base"],
    "encoders/networks": ["base", "store", "kernels", "nn", "nn/weights", "encoders/tokenizer"],
    "report": ["base", "protocol", "cluster"],
    "controller/core": ["base", "cluster"],
    "controller/core/state": ["base", "protocol", "cluster", "controller/core"],
    "controller/core/facts": ["protocol", "controller/core/state"],
    "controller/core/observe": ["protocol", "cluster", "controller/core/state", "controller/core/facts"],
    "controller/core/judge": ["protocol", "controller/core/state", "controller/core/facts"],
    "controller/core/write": ["cluster", "controller/core/state", "controller/core/facts", "controller/core/observe",
                              "controller/core/judge"],
    "controller/core/decide": ["cluster", "controller/core/state", "controller/core/facts", "controller/core/observe",
                               "controller/core/judge", "controller/core/write"],
    "controller/core/step": ["cluster", "controller/core", "controller/core/state", "controller/core/facts",
                             "controller/core/observe", "controller/core/judge", "controller/core/decide"],
    "controller/core/notifier": ["controller/core", "controller/core/state"],
    "controller/feed": ["base", "protocol", "cluster", "controller/core"],
    "controller/rights": ["base", "etcd", "cluster"],
    "controller/config": ["base", "etcd", "metrics", "cluster", "controller/core"],
    "controller/journal": ["base", "cluster", "controller/core", "controller/feed"],
    "controller/alerting": ["base", "etcd", "cluster", "controller/core/notifier", "controller/feed", "controller/rights"],
    "controller/leader": ["base", "etcd", "cluster", "controller/core", "controller/feed", "controller/rights",
                          "controller/journal"],
    "controller": ["base", "metrics", "cluster", "report", "controller/core", "controller/core/step", "controller/config",
                   "controller/journal", "controller/alerting", "controller/leader"],
    "daemon/loop": ["base"],
    "daemon/config": ["base", "etcd", "health", "metrics", "cluster"],
    "daemon/process": ["base", "cluster"],
    "daemon/world": ["base", "protocol", "etcd", "cluster", "daemon/loop", "daemon/config", "daemon/process"],
    "daemon/health": ["base", "etcd", "health", "cluster", "daemon/loop", "daemon/config", "daemon/process", "daemon/world"],
    "daemon/node": ["base", "etcd", "cluster", "daemon/loop", "daemon/config", "daemon/process", "daemon/world"],
    "daemon": ["base", "protocol", "health", "metrics", "daemon/process", "daemon/world", "daemon/health", "daemon/node"],
    "exec/resources": ["base"],
    "exec": ["base", "protocol", "daemon/process", "exec/resources"],
    "trainer/comm": ["base"],
    "trainer/link": ["base", "protocol"],
    "trainer/begin": ["protocol", "kernels", "nn", "nn/weights", "manifest"],
    "trainer/plan": ["protocol", "nn", "manifest"],
    "trainer/state": ["base", "protocol", "kernels", "nn", "manifest", "trainer/comm"],
    "trainer/checkpoint": ["base", "protocol", "store", "manifest", "trainer/comm", "trainer/state"],
    "trainer/checkpoint/restore": ["base", "store", "manifest", "trainer/state", "trainer/checkpoint"],
    "trainer/sample": ["base", "protocol", "nn", "data", "encoders", "encoders/networks", "trainer/checkpoint"],
    "trainer/session": ["base", "protocol", "store", "kernels", "nn", "nn/weights", "data", "trainer/comm", "trainer/link",
                        "trainer/begin", "trainer/plan", "trainer/state", "trainer/checkpoint"],
    "trainer/evaluate": ["base", "protocol", "store", "trainer/link", "trainer/sample", "trainer/session", "trainer/state"],
    "trainer": ["base", "protocol", "store", "nn", "data", "trainer/plan", "trainer/state", "trainer/checkpoint",
                "trainer/sample", "trainer/session", "trainer/evaluate"],
    "prep/raw": ["base", "protocol", "store", "data/mds", "data/stream"],
    "prep/encode": ["base", "protocol", "store", "data/mds", "data", "encoders/pictures", "encoders/tokenizer",
                    "encoders/networks", "prep/raw"],
    "prep": ["base", "store", "data/mds", "data/stream", "data", "encoders", "prep/raw", "prep/encode"],
    "ctl": ["base", "protocol", "etcd", "store", "data", "cluster", "manifest", "encoders/networks", "report",
            "controller/feed", "controller/rights", "controller/journal", "trainer/begin", "trainer/plan"],
    "tests": ["*"],
}
# One file that both nvcc and the emulator compile.
SEAM = ("kernels/cuda/kernels/kernel.cuh", "kernels/test/emulator/emulate.h")
SOURCES = (".c", ".h", ".cc", ".cu", ".cuh")
MODULES_MAX = 16  # of a folder
LABELS = ("Ownership:", "Units:", "Errors:", "Threads:")
BAD_NAMES = ("util", "utils", "common", "helper", "helpers", "misc")
BAD_WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
UNSAFE = re.compile(r"(?<![A-Za-z0-9_])(strcpy|strcat|sprintf|gets|strtok|alloca)\s*\(")

problems = []
folder_defaults = {}  # folder -> {label: header that states it for all}
included = set()  # (folder, folder that it includes)


def complain(path, line, text):
    problems.append(f"{path.relative_to(ROOT)}:{line}: {text}")


def tracked():
    out = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True).stdout
    for name in out.decode().split("\0"):
        if name.startswith("-"):
            problems.append(f"{name}: a file that an option was taken for")
        path = ROOT / name
        if name and path.is_file() and path.suffix in SOURCES:
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
    home, name = home_of(path), path.relative_to(ROOT).as_posix()
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
        if home not in ("test", "tests") and there not in ("test", home):
            included.add((home, there))
        if home == "test" or (name, match.group(1)) == SEAM or there == home or "*" in LAW.get(home, []) or there in LAW.get(home, []):
            continue
        complain(path, number, f"{home}/ may not include {match.group(1)}")


def check_law():
    """Each row names rows above it, and only what is included; CMake adds the folders in this order."""
    rows = list(LAW)
    for folder, allowed in LAW.items():
        for other in allowed:
            if other != "*" and (other not in LAW or rows.index(other) >= rows.index(folder)):
                problems.append(f"tests/tidy/tidy.py: LAW: {folder} includes {other}, which is not a row above it")
            elif other != "*" and (folder, other) not in included:
                problems.append(f"tests/tidy/tidy.py: LAW: {folder} does not include {other}")
    order = re.search(r"^foreach\(folder ([^)]*)\)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1].split()
    for folder, other in sorted({(a.split("/")[0], b.split("/")[0]) for a, b in included}):
        if folder != other and other not in order[: order.index(folder)]:
            problems.append(f"CMakeLists.txt: {folder} includes {other}, which does not stand before it")


def check_pictures():
    """The two pictures of architecture.md, of floors and of the folders within a room, have each folder once, above what
    it includes."""
    name = "docs/internals/architecture.md"
    section = (ROOT / name).read_text().partition("\n## The include law\n")[2]
    floors, within = re.findall(r"^```text\n(.*?)^```$", section, re.M | re.S)[:2]
    height = {}
    for line in floors.splitlines():
        floor, *rooms = line.split()
        height.update({room: int(floor) for room in rooms})
    place = {}
    for line in re.sub(r"\n {10,}", " ", within).splitlines():
        room, steps = line.split(None, 1)
        for at, step in enumerate(steps.split("<")):
            for folder in step.split(","):
                folder = folder.strip()
                place[room if folder == room else f"{room}/{folder}"] = at
    folders = {folder for folder in LAW if folder != "tests"}
    rooms = {folder.split("/")[0] for folder in folders}
    alone = {room for room in rooms if not any(folder.startswith(f"{room}/") for folder in folders)}
    for found, wanted, what in ((set(height), rooms, "floors"), (set(place), folders - alone, "rooms")):
        problems.extend(f"{name}: the picture of {what} lacks {folder}" for folder in sorted(wanted - found))
        problems.extend(f"{name}: the picture of {what} has {folder}, which is not a folder" for folder in sorted(found - wanted))
    for folder, other in sorted(included):
        room, there = folder.split("/")[0], other.split("/")[0]
        if room != there and height.get(room, 0) <= height.get(there, 0):
            problems.append(f"{name}: {room} includes {there}, which stands no lower")
        if room == there and place.get(folder, 0) <= place.get(other, 0):
            problems.append(f"{name}: {folder} includes {other}, which does not stand before it")


def check_modules(files):
    """A folder has at most so many modules; a header that is named as the folder is its door."""
    modules = collections.defaultdict(set)
    for path in files:
        folder, name = path.relative_to(ROOT).parent, path.stem.removesuffix("-internal")
        if "test" not in folder.parts and folder.parts[0] != "tests" and name != folder.name:
            modules[folder].add(name)
    for folder, names in sorted(modules.items()):
        if len(names) > MODULES_MAX:
            problems.append(f"{folder}: {len(names)} modules in a folder")


def head_of(text):
    return text[: text.find("*/", len(SPDX))]


def defaults_of(folder):
    """{label: header} of what one header of the folder states for all: " * Folder: Threads: any. Units: none."."""
    stated = {}
    for path in sorted(folder.glob("*.h")):
        lines = re.search(r"\n \* Folder: .*(?:\n \*  +.*)*", head_of(path.read_text(encoding="utf-8")))
        for label in re.findall("|".join(LABELS), lines[0]) if lines else ():
            if stated.setdefault(label, path) != path:
                complain(path, 1, f"{stated[label].name} states the folder's {label}, too")
    return stated


def check_header(path, text):
    if "#pragma once" not in text:
        complain(path, 1, "no #pragma once")
    head = head_of(text)
    if path.parent not in folder_defaults:
        folder_defaults[path.parent] = defaults_of(path.parent)
    first = text.splitlines()[1] if text.count("\n") > 1 else ""
    if not first.startswith(f"/* {path.name} - "):
        complain(path, 1, f'must begin with "/* {path.name} - what it is."')
    for label in LABELS:
        if not re.search(rf"\n \* (.*\. )?{label}", head) and label not in folder_defaults[path.parent]:
            complain(path, 1, f"the opening comment does not state {label}, and no header states it for the folder")


SPDX = "/* SPDX-License-Identifier: Apache-2.0 */"


def check_form(path, lines):
    if not lines or lines[0] != SPDX:
        complain(path, 1, f"must begin with {SPDX}")
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
        for text in english.complaints(line):
            complain(path, number, text)


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


def check_packaged():
    """A source that no installed program is made of is a test's, and lies in a test/."""
    out = subprocess.run(["ninja", "-C", BUILD, "-t", "inputs", "programs"], capture_output=True, text=True, check=True).stdout
    used = {line.strip() for line in out.splitlines()}
    cuda = str(ROOT / "kernels/cuda/module/device.c") in used
    for path in tracked():
        parts = path.relative_to(ROOT).parts
        if path.suffix in (".c", ".cc") and "test" not in parts and parts[0] != "tests" and str(path) not in used \
                and (cuda or parts[:2] != ("kernels", "cuda")):
            complain(path, 1, "no package has it, and it lies in no test/")


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


def check_planted():
    """A planted bug finds its place, and a mark of equal.txt its change: what has moved is planted nowhere, and nobody misses it."""
    try:
        mutants_plant.locate(mutants_plant.read(ROOT / "tests/mutants"), ROOT)
        for name, was, now in mutants_operators.stale_marks(ROOT):
            problems.append(f"tests/mutants/equal.txt: {name}: no operator makes this change, delete the mark or write the line anew:\n    was  {was}\n    now  {now}")
    except mutants_plant.BadBug as error:
        problems.append(f"tests/mutants: {error}")


def check_callers():
    """A function that only tests call is for them, or for those who write the documents, and its header says so."""
    comment, word = re.compile(r"/\*.*?\*/|//[^\n]*", re.S), re.compile(r"\b[a-z]\w*\b")
    prototype = re.compile(r"^(?!static|typedef|#|\s)[^\n;{}()=]*?\b([a-z]\w*)\([^;{}]*\)[^;{}]*;", re.M)
    texts = {path: path.read_text(encoding="utf-8") for path in tracked() if "test" not in path.parts and path.relative_to(ROOT).parts[0] != "tests"}
    code = {path: comment.sub(lambda match: re.sub(r"\S", " ", match[0]), text) for path, text in texts.items()}
    uses = collections.Counter(name for text in code.values() for name in word.findall(text))
    for path, text in texts.items():
        for match in prototype.finditer(code[path]) if path.suffix == ".h" else ():
            said = text[text.rfind("/*", 0, match.start()) : match.start()]
            if uses[match[1]] <= 2 and not re.fullmatch(r"/\* For (tests|the documents)\b.*\*/\n", said, re.S):
                complain(path, text.count("\n", 0, match.start(1)) + 1,
                         f"only tests call {match[1]}(): delete it, or begin its comment with \"For tests\" or \"For the documents\"")


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


def check_source(path, text):
    lines = text.splitlines()
    check_includes(path, lines)
    for number, complaint in english.of_source(text):
        complain(path, number, complaint)
    if path.suffix in (".cu", ".cuh"):
        return
    check_form(path, lines)
    if path.suffix == ".h":
        check_header(path, text)
    else:
        check_functions(path, lines)


def main():
    files = [ROOT / name for name in FILES] or list(tracked())
    for path in files:
        check_source(path, path.read_text(encoding="utf-8"))
    if not FILES:
        check_law()
        check_pictures()
        check_modules(files)
        check_planted()
        check_callers()
    check_format([path for path in files if path.suffix not in (".cu", ".cuh")])
    if BUILD:
        check_purity()
        check_packaged()
        check_tests()
    for problem in problems:
        print(problem)
    print(f"tidy: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
