# SPDX-License-Identifier: Apache-2.0
"""Planted bugs: how one is written (read), where it fits (locate), and how it is built and run (Build, try_bug).

Nothing is built again but what a bug touches: its file is compiled with the command that the build folder has for it, and
the test is linked with its own command, the bug's object standing before the libraries, so that theirs is never taken.
What a test starts is ended with it (mutants_keeper.py).
"""
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

SCHEDULES_MAX = 400  # of 8 nodes, where the seed that is kept finds its bug no more
SEARCH_SEC = 900
KEEPER = pathlib.Path(__file__).with_name("mutants_keeper.py")
KEYS = ("why", "function", "file", "test", "programs", "seed", "invariant", "open")
FUNCTION = re.compile(r"^(?![\s#/{}*])[^\n;={}()]*?\b(?P<name>\w+)\((?:[^;{}]|\n)*?\)\s*\{", re.M)


class BadBug(Exception):
    """A file of tests/mutants that is not as it must be; the text names it."""


@dataclasses.dataclass
class Bug:
    part: str
    name: str
    file: str  # below the root; empty: where the function is that holds the old texts
    tests: list  # commands: a program of bin/, its device behind @, its arguments
    changes: list  # [(old, new)]
    why: str = ""
    programs: list = dataclasses.field(default_factory=list)  # what the test starts and the bug is in
    seed: str = ""  # of the simulator
    invariants: list = dataclasses.field(default_factory=list)  # any: which may name it
    open: str = ""  # what is missing that would catch it
    path: object = None  # the file that has it
    function: str = ""
    begin: int = 0  # of the function in its file
    end: int = 0
    strict: bool = False  # what a compiler warns of is not a bug

    def title(self):
        return f"{self.part}/{self.name}"


CHANGE = re.compile(r"^<<<\n(.*?)^===\n(.*?)^>>>\n", re.M | re.S)
ENTRY = re.compile(r"bug: (?P<name>\S+)\n(?P<head>(?:(?!<<<$|bug: )[^\n]*\n)*)(?P<changes>(?:<<<\n.*?^===\n.*?^>>>\n)+)\n*", re.M | re.S)


def parse(path, entry):
    """A Bug: "bug: NAME", lines "key: value", then changes, each "<<< old === new >>>"."""
    title = f"{path.stem}/{entry['name']}"
    fields = {key: [] for key in KEYS}
    for line in entry["head"].splitlines():
        key, colon, value = line.partition(":")
        if not colon or key not in fields:
            raise BadBug(f"{title}: no field of a planted bug: {line!r}")
        fields[key].append(value.strip())
    for key in ("why", "test"):
        if not fields[key] or (key != "test" and len(fields[key]) != 1):
            raise BadBug(f"{title}: one field {key!r} is needed")
    if len(fields["function"]) + len(fields["file"]) != 1:
        raise BadBug(f"{title}: one field 'function', or 'file' for what is in no function, is needed")
    if fields["file"] and not fields["file"][0].endswith(".c"):
        raise BadBug(f"{title}: {fields['file'][0]} is not a C source")
    if ("sim" in fields["test"]) != bool(fields["seed"] and fields["invariant"]):
        raise BadBug(f"{title}: the simulator's bugs, and no others, have a seed and an invariant")
    return Bug(path.stem, entry["name"], "".join(fields["file"]), fields["test"], CHANGE.findall(entry["changes"]), fields["why"][0],
               " ".join(fields["programs"]).split(), "".join(fields["seed"]), re.findall(r"[\w-]+", " ".join(fields["invariant"])),
               "".join(fields["open"]), path, function="".join(fields["function"]))


def entries(path):
    text, at = path.read_text(encoding="utf-8"), 0
    while at < len(text):
        entry = ENTRY.match(text, at)
        if not entry:
            line = text.count("\n", 0, at) + 1
            raise BadBug(f"{path.name}:{line}: no planted bug: 'bug: NAME', its fields, then <<<, ===, >>>, each on a line of its own")
        yield entry
        at = entry.end()


def read(folder):
    """All planted bugs of a folder, sorted: those of PART lie in FOLDER/PART.bugs."""
    bugs = [parse(path, entry) for path in sorted(folder.glob("*.bugs")) for entry in entries(path)]
    names = [bug.title() for bug in bugs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadBug(f"{twice[0]}: there are two of that name")
    return sorted(bugs, key=Bug.title)


def keep_seed(bug, seed):
    """Writes another seed into the bug's entry."""
    text = bug.path.read_text(encoding="utf-8")
    begin = text.index(f"bug: {bug.name}\n")
    at = text.index(f"\nseed: {bug.seed}\n", begin)
    bug.path.write_text(text[:at] + f"\nseed: {seed}\n" + text[at + len(f"\nseed: {bug.seed}\n"):], encoding="utf-8")


class Functions:
    """The functions of a tree's C sources that are not tests': {name: [(file, begin, end)]}."""

    def __init__(self, root):
        self.text, self.of = {}, {}
        for path in sorted(root.rglob("*.c")):
            parts = path.relative_to(root).parts
            if any(part == "test" or part.startswith(("build", ".")) for part in parts[:-1]) or parts[0] == "tests":
                continue
            name = "/".join(parts)
            self.text[name] = path.read_text(encoding="utf-8")
            for match in FUNCTION.finditer(self.text[name]):
                # A body on one line ends there; any other with a brace in the first column.
                line = self.text[name].find("\n", match.end())
                end = line if self.text[name][match.end():line].rstrip().endswith("}") else self.text[name].find("\n}\n", match.end()) + 2
                self.of.setdefault(match["name"], []).append((name, match.start(), end))

    def find(self, bug):
        """The only place where a function of that name has all old texts once."""
        found = [place for place in self.of.get(bug.function, [])
                 if all(self.text[place[0]].count(old, place[1], place[2] + 1) == 1 for old, _ in bug.changes)]
        if len(found) != 1:
            files = ", ".join(place[0] for place in found or self.of.get(bug.function, [])) or "no file"
            raise BadBug(f"{bug.title()}: {len(found)} functions {bug.function}() have its old text once (in {files}):\n{bug.changes[0][0]}")
        return found[0]


def locate(bugs, root):
    """Gives each bug that names a function its file; all must fit, whichever are tried."""
    functions = Functions(root)
    for bug in bugs:
        if bug.function:
            bug.file, bug.begin, bug.end = functions.find(bug)
        else:
            apply(bug, root)


def apply(bug, root):
    """The source with the bug in it."""
    path = root / bug.file
    if not path.is_file():
        raise BadBug(f"{bug.title()}: there is no {bug.file}")
    text = path.read_text(encoding="utf-8")
    before, text, behind = (text[:bug.begin], text[bug.begin:bug.end + 1], text[bug.end + 1:]) if bug.function else ("", text, "")
    for old, new in bug.changes:
        if text.count(old) != 1:
            raise BadBug(f"{bug.title()}: its old text stands {text.count(old)} times in {bug.file}:\n{old}")
        text = text.replace(old, new)
    return before + text + behind


# ---- building ----


class Build:
    """A build folder of CMake and Ninja, read once."""

    def __init__(self, root, folder):
        self.root, self.folder = root, folder
        self.compiles = {}  # file below the root: [command words, object]
        for entry in json.loads((folder / "compile_commands.json").read_text()):
            words = shlex.split(entry["command"])
            name = os.path.relpath(entry["file"], root)
            self.compiles.setdefault(name, []).append((words, words[words.index("-o") + 1]))
        self.links = {}

    def link_of(self, program):
        """Words of the command that links bin/PROGRAM; None: there is no such program."""
        if program not in self.links:
            out = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "-s", f"bin/{program}"], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True)
            self.links[program] = shlex.split(out.stdout.strip().removeprefix(": && ").removesuffix(" && :")) or None
        return self.links[program]


def compile_and_link(build, bug, program, text, home):
    """Makes HOME/bin/PROGRAM with the bug in it; "" or why not."""
    link = build.link_of(program)
    if not link:
        return f"there is no program {program}"
    for words, made in build.compiles.get(bug.file, []):
        target = re.search(r"CMakeFiles/([^/]+)\.dir/", made)[1]
        library = next((word for word in link if os.path.basename(word) == f"lib{target}.a"), None)
        if made in link or library:
            break
    else:
        return f"{program} does not have {bug.file}"
    source, out = home / os.path.basename(bug.file), home / (made.replace("/", "_") + ".o")
    if not out.exists():
        source.write_text(text, encoding="utf-8")
        words = [str(source) if word == str(build.root / bug.file) else str(out) if word == made else word for word in words]
        words += ["-iquote", str((build.root / bug.file).parent), "-g0"]
        words += ["-Wno-error", "-Werror=incompatible-pointer-types", "-Werror=int-conversion"] if bug.strict else ["-w"]
        done = subprocess.run(words, cwd=build.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            return "does not compile: " + "\n".join(done.stdout.splitlines()[:4])
    if made in link:
        link = [str(out) if word == made else word for word in link]
    else:
        at = max(i for i, word in enumerate(link[: link.index(library)]) if word.endswith(".o"))
        link = link[: at + 1] + [str(out)] + link[at + 1:]
    link = [str(home / "bin" / program) if word == f"bin/{program}" else word for word in link]
    done = subprocess.run(link, cwd=build.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return "does not link: " + "\n".join(done.stdout.splitlines()[:4]) if done.returncode else ""


# ---- running ----


def run(words, environment, folder, limit_sec):
    """(exit status or "timed out" or "too much memory", output, seconds)."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        keeper = [sys.executable, "-S", "-E", KEEPER, str(limit_sec), *map(str, words)]
        process = subprocess.Popen(keeper, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=environment)
        try:
            status = process.wait(limit_sec + 60)
        finally:
            process.terminate()
            process.wait()
        out.seek(max(0, out.seek(0, os.SEEK_END) - (1 << 20)))
        text = out.read().decode("utf-8", "replace")
    ended = re.search(r"^KEEPER: (.*)\n\Z", text, re.M)
    return ended[1] if ended else status, text, time.monotonic() - began


def run_test(build, test, bin_folder, limit_sec):
    """One command of a bug, with the programs of that folder."""
    program, *arguments = test.split()
    program, _, device = program.partition("@")
    with tempfile.TemporaryDirectory(prefix="sdm-") as scratch:
        environment = dict(os.environ, SDTRAIN_BIN=str(bin_folder), SDTRAIN_SOURCE=str(build.root), TMPDIR=scratch, PYTHONDONTWRITEBYTECODE="1",
                           SDTRAIN_CUDA_LIBRARIES=str(build.folder / "fake-cuda"))
        if device:
            environment["SDTRAIN_TEST_DEVICE"] = device
        return run([str(bin_folder / program), *arguments], environment, build.root, limit_sec)


def overlay(build, folder):
    """A bin/ in which all programs of the build are, each a link that a bug's own program may replace."""
    folder.mkdir(parents=True)
    for path in (build.folder / "bin").iterdir():
        (folder / path.name).symlink_to(path)


@dataclasses.dataclass
class Result:
    bug: Bug
    state: str  # caught, survives, error
    by: str = ""
    took: float = 0
    text: str = ""
    seed: str = ""


def try_seeds(build, bug, bin_folder):
    """The simulator's bugs: by the seed that is kept, or by the first that finds it."""
    for seeds, limit in ((f"{bug.seed}..{bug.seed}", 120), (f"1..{SCHEDULES_MAX}", SEARCH_SEC)):
        status, out, took = run_test(build, f"sim --seeds {seeds} --first", bin_folder, limit)
        for invariant, seed in re.findall(r"^BROKEN (\S+) by seed (\d+)", out, re.M):
            if invariant in bug.invariants or "any" in bug.invariants:
                note = "" if seed == bug.seed else f"no more by seed {bug.seed} (--write keeps the new one)"
                return Result(bug, "caught", f"sim: {invariant} by seed {seed}", took, note, seed)
        if status == "timed out":
            return Result(bug, "caught", "sim: timed out", took, "", bug.seed)
    return Result(bug, "survives", "", took, f"{SCHEDULES_MAX} schedules")


def try_bug(build, bug, limits):
    """Builds a bug and runs its tests until one catches it. limits: {test: seconds}."""
    began = time.monotonic()
    home = pathlib.Path(tempfile.mkdtemp(prefix="bug-", dir=build.folder / "mutants"))
    try:
        text = apply(bug, build.root)
        overlay(build, home / "bin")
        for program in {test.split()[0].partition("@")[0] for test in bug.tests} | set(bug.programs):
            link = home / "bin" / program
            link.unlink(missing_ok=True)
            why = compile_and_link(build, bug, program, text, home)
            if why and program not in bug.programs and bug.programs and why.endswith(f"does not have {bug.file}"):
                link.symlink_to(build.folder / "bin" / program)  # the test only starts what the bug is in
                continue
            if why:
                if bug.strict and len(bug.tests) > 1 and why.endswith(f"does not have {bug.file}"):
                    bug.tests = [test for test in bug.tests if test.split()[0] != program]
                    continue
                return Result(bug, "error", "", time.monotonic() - began, why)
        if bug.seed:
            return try_seeds(build, bug, home / "bin")
        for test in bug.tests:
            status, out, _ = run_test(build, test, home / "bin", limits[test])
            if status != 0:
                how = f": {status}" if isinstance(status, str) else ""
                return Result(bug, "caught", test + how, time.monotonic() - began, first_complaint(out))
        return Result(bug, "survives", "", time.monotonic() - began, ", ".join(bug.tests))
    except BadBug as bad:
        return Result(bug, "error", "", 0, str(bad))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def first_complaint(out):
    """The line of a test's output that says most; for people."""
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    found = [line for line in lines if re.search(r"assert|\bFAILED\b|error:|!= |ERROR", line, re.I) and "Running" not in line]
    return (found or lines or [""])[0][:160]
