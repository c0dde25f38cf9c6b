#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Documents that a machine can check: every link of every Markdown file leads somewhere, README stays short, and the
tables between <!-- begin: PART --> and <!-- end --> are what the programs say.

    test-docs.py                              checks, exit status 1 and a line for each problem
    test-docs.py --links                      links and names alone: nothing has to be built
    SDTRAIN_REFERENCE=write test-docs.py      writes the tables into the pages first

SDTRAIN_BIN names the folder of the programs, build/release/bin by default.
"""
import os
import re
import subprocess
import sys

ROOT = os.environ.get("SDTRAIN_SOURCE") or os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BIN = os.environ.get("SDTRAIN_BIN") or os.path.join(ROOT, "build/release/bin")
README_LINES = 150

problems = []


def complain(path, line, text):
    problems.append(f"{path}:{line}: {text}")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def tracked():
    """Every file that git knows or would take, as a path below the root."""
    out = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         stdout=subprocess.PIPE, check=True).stdout.decode()
    return {path for path in out.split("\0") if path and os.path.lexists(os.path.join(ROOT, path))}


# ---- links ----

def without_code(text):
    """The text with code replaced by blanks, so that lines keep their numbers."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r"^( *)(```|~~~).*?^ *\2[^\n]*$", blank, text, flags=re.M | re.S)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", blank, text)


def anchor_of(heading):
    """As GitHub makes it."""
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors_of(text):
    text = re.sub(r"^( *)(```|~~~).*?^ *\2[^\n]*$", "", text, flags=re.M | re.S)
    seen, anchors = {}, set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.M):
        anchor = anchor_of(heading)
        n = seen.get(anchor, 0)
        seen[anchor] = n + 1
        anchors.add(f"{anchor}-{n}" if n else anchor)
    return anchors


def links_of(text):
    """(line, target) of inline links, images and reference definitions."""
    text = without_code(text)
    for match in re.finditer(r"\]\(\s*<?([^)<>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^]]+\]:\s+(\S+)", text, re.M):
        yield text.count("\n", 0, match.start()) + 1, match.group(1) or match.group(2)


def check_links(path, files):
    folders = {os.path.dirname(file) for file in files}
    for folder in list(folders):
        while folder:
            folder = os.path.dirname(folder)
            folders.add(folder)
    for line, target in links_of(read(path)):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue  # another machine's
        place, _, anchor = target.partition("#")
        there = os.path.normpath(os.path.join(os.path.dirname(path), place)) if place else path
        if there not in files and there.rstrip("/") not in folders:
            complain(path, line, f"{target} leads nowhere")
        elif anchor and there.endswith(".md") and anchor not in anchors_of(read(there)):
            complain(path, line, f"{target}: {there} has no such heading")


def check_runbooks():
    """Notifications link to headings of the runbooks: payload-text.c names them."""
    path = "controller/alerting/payload-text.c"
    text = read(path)
    named = list(re.finditer(r'"([a-z-]+\.md)(?:#([a-z-]+))?"', text))
    if len(named) < 20:
        complain(path, 1, "names no runbooks any more")
    for match in named:
        page, anchor = "docs/operating/runbooks/" + match.group(1), match.group(2)
        line = text.count("\n", 0, match.start()) + 1
        if not os.path.exists(os.path.join(ROOT, page)):
            complain(path, line, f"{page} is not there")
        elif anchor and anchor not in anchors_of(read(page)):
            complain(path, line, f"{page} has no heading {anchor}")


# ---- tables of the reference ----

def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"docs: {' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def settings(program):
    """The settings as --help lists them: key, default, meaning, whether a reload takes a new value over."""
    text = run(os.path.join(BIN, program), "--help").split("--help, --version")[1]
    rows = ["| key | default | meaning | reload |", "|---|---|---|---|"]
    for name, rest in re.findall(r"^ +--([a-z0-9-]+) +(.*)$", text, re.M):
        told, default, reloads = re.match(r"(.*?)(?: \(([^()]*)\))?( \*)?$", rest).groups()
        plain = not default or " " in default or default in ("required", "all", "off")
        rows.append("| `%s` | %s | %s | %s |" % (name.replace("-", "_"), default or "none" if plain else f"`{default}`",
                                                 told, "yes" if reloads else ""))
    return "\n".join(rows) + "\n"


def commands(program):
    """The help of each verb; what all verbs of a program share stands at the page's top."""
    path = os.path.join(BIN, program)
    made = []
    for verb in re.findall(r"^  ([a-z-]+(?: [a-z-]+)?) ", run(path, "--help"), re.M):
        lines = run(path, *verb.split(), "--help").split("\nExit codes:")[0].rstrip().split("\n")
        lines = [line for line in lines if not re.match(r" +--(etcd|cluster|context) ", line)]
        made.append("### %s %s\n\n```\n%s\n```\n" % (program, verb, "\n".join(lines).rstrip()))
    return "\n".join(made)


PARTS = {
    "commands sdctl": lambda: commands("sdctl"),
    "commands sdtrainer": lambda: commands("sdtrainer"),
    "commands sdprep": lambda: commands("sdprep"),
    "commands sdtrain-exec": lambda: commands("sdtrain-exec"),
    "settings sdtraind": lambda: settings("sdtraind"),
    "settings sdcontroller": lambda: settings("sdcontroller"),
    "metrics process": lambda: run(os.path.join(BIN, "reference-sdtraind"), "process"),
    "metrics sdtraind": lambda: run(os.path.join(BIN, "reference-sdtraind")),
    "metrics sdcontroller": lambda: run(os.path.join(BIN, "reference-sdcontroller")),
    **{part: lambda part=part: run(os.path.join(BIN, "reference"), part)
       for part in ("job", "exec-job", "eval-job", "loss-job", "grid-job", "records", "channel", "causes", "exit-codes", "xids")},
}
MARKED = re.compile(r"^<!-- begin: ([^>]+) -->\n(.*?)^<!-- end -->$", re.M | re.S)


def check_parts(path, writes, found):
    text = read(path)

    def replace(match):
        part = match.group(1)
        if part not in PARTS:
            return match.group(0)  # somebody else's
        found.add(part)
        made = f"<!-- begin: {part} -->\n\n{PARTS[part]()}\n<!-- end -->"
        if match.group(0) != made and not writes:
            complain(path, text.count("\n", 0, match.start()) + 1,
                     f"the table of {part} is not what the code says: SDTRAIN_REFERENCE=write tests/reference/test-docs.py")
        return made
    fresh = MARKED.sub(replace, text)
    if writes and fresh != text:
        with open(os.path.join(ROOT, path), "w", encoding="utf-8") as file:
            file.write(fresh)
        print(f"docs: {path} is written")


# ---- pages that people write about names that the code has ----

def sources(files, containing):
    """Texts of production sources in C that contain it."""
    texts = []
    for path in sorted(files):
        name = os.path.basename(path)
        if path.endswith(".c") and not re.match(r"(test|fuzz|bench)", name) and "/test" not in "/" + path:
            text = read(path)
            if containing in text:
                texts.append(text)
    return texts


def check_names(files):
    """page -> names that the code knows: each must stand in the page as `name`."""
    known = {
        "docs/reference/s3.md": {name for text in sources(files, "AWS_") + sources(files, "SDTRAIN_S3_")
                                 for name in re.findall(r'"((?:AWS|SDTRAIN_S3)_[A-Z0-9_]*[A-Z0-9])"', text)},
        "docs/reference/manifest.md": {name for text in sources(files, "manifest_parse(const char") + sources(files, "owner_parse(const char")
                                       for name in re.findall(r'get_\w+\(&?\w+,\s*"([a-z0-9_]+)"', text)},
        "docs/reference/journal.md": {name for text in sources(files, "config_numbers[]")
                                      for name in re.findall(r"(?:WIDE|NARROW)\(\w+, (\w+)", text)
                                      if name != "field"},
    }
    for page, names in known.items():
        if len(names) < 10:
            problems.append(f"docs: only {sorted(names)} were found in the code for {page}: has it moved?")
        text = read(page)
        for name in sorted(names):
            if f"`{name}`" not in text:
                problems.append(f"{page}: does not name {name}")


def main():
    files, found = tracked(), set()
    pages = sorted(path for path in files if path.endswith(".md"))
    links_alone = sys.argv[1:] == ["--links"]
    for path in [] if links_alone else pages:
        check_parts(path, os.environ.get("SDTRAIN_REFERENCE") == "write", found)
    for path in pages:
        check_links(path, files)
    check_names(files)
    check_runbooks()
    for part in [] if links_alone else sorted(set(PARTS) - found):
        problems.append(f"docs: no page has the table of {part}")
    n = read("README.md").count("\n")
    if n > README_LINES:
        complain("README.md", n, f"{n} lines, at most {README_LINES}: what is not for a newcomer belongs into docs")
    for problem in problems:
        print(problem)
    print(f"docs: {len(pages)} pages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
