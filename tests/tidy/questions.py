#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty questions: the documents lead from README.md to the key files of each in three steps at most.

usage: questions.py SOURCE-ROOT
CONTRIBUTING.md lists the questions with their key files, and is itself no step: whoever follows README finds them.
Also: docs/glossary.md has at most 90 rows, each of another word that stands in a source or a page; each key that sdctl
packs into JSON stands in docs/reference/json-output.md.
Prints one line for each break and exits 1 if there is any.
"""
import collections
import os
import pathlib
import re
import subprocess
import sys

STEPS = 3
QUESTIONS = 20
ROWS = 90
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def links(root, page):
    """Paths below root that the page links to, fragments cut off."""
    text = re.sub(r"^```.*?^```", "", (root / page).read_text(encoding="utf-8"), flags=re.S | re.M)
    for target in LINK.findall(text):
        target = target.partition("#")[0]
        if target and "://" not in target and not target.startswith("mailto:"):
            yield os.path.normpath(os.path.join(os.path.dirname(page), target))


def distances(root):
    """How many links lie between README.md and each file, over Markdown pages; CONTRIBUTING.md is none of them."""
    far = {"README.md": 0}
    queue = collections.deque(far)
    while queue:
        page = queue.popleft()
        for target in links(root, page):
            if target in far:
                continue
            far[target] = far[page] + 1
            if target.endswith(".md") and target != "CONTRIBUTING.md" and (root / target).is_file():
                queue.append(target)
    return far


def questions(root):
    """(number, [key file]) of each row of the table."""
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for number, _, files in re.findall(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", text, re.M):
        yield int(number), [os.path.normpath(target) for target in LINK.findall(files)]


def check_questions(root):
    far = distances(root)
    rows = list(questions(root))
    if [number for number, _ in rows] != list(range(1, QUESTIONS + 1)):
        yield f"CONTRIBUTING.md: the questions are numbered {[number for number, _ in rows]}, not 1 to {QUESTIONS}"
    for number, files in rows:
        if not files:
            yield f"CONTRIBUTING.md: question {number} has no key file"
        for name in files:
            if not (root / name).is_file():
                yield f"CONTRIBUTING.md: question {number}: {name} does not exist"
            elif far.get(name, STEPS + 1) > STEPS:
                yield f"question {number}: {name} is not reached from README.md in {STEPS} steps ({far.get(name, 'never')})"


def check_words(root):
    text = (root / "docs/glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.M)[1:]  # without the head
    for word, standard, meaning in rows:
        if not standard.strip() or len(meaning.split()) < 4:
            yield f"docs/glossary.md: {word.strip()}: says nothing"
    order = [word.strip().lower() for word, _, _ in rows if not word.startswith("---")]
    for before, after in zip(order, order[1:]):
        if after < before:
            yield f"docs/glossary.md: {after} stands after {before}"
        if after == before:
            yield f"docs/glossary.md: {after} has two rows"
    if len(order) > ROWS:
        yield f"docs/glossary.md: {len(order)} rows, at most {ROWS}: say it in the field's word"
    # Names are joined by underscores and pages break lines; the glossary itself is no witness.
    out = subprocess.run(["git", "-C", root, "ls-files", "-z", "*.c", "*.h", "*.cu", "*.md"], stdout=subprocess.PIPE, check=True)
    tree = "\n".join((root / name).read_text(encoding="utf-8") for name in out.stdout.decode().split("\0")
                     if name and name != "docs/glossary.md" and (root / name).is_file())
    tree = re.sub(r"[\s_*]+", " ", tree).lower()
    for word in order:
        if word not in tree:
            yield f"docs/glossary.md: {word} stands nowhere else"


def keys_of(text):
    """Words that calls of json_pack() name."""
    for call in re.finditer(r"\bjson_pack\(", text):
        depth, end = 1, call.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield from re.findall(r'"([a-z][a-z_]*)"', text[call.end():end])


def check_json(root):
    page = (root / "docs/reference/json-output.md").read_text(encoding="utf-8")
    known = {word for code in re.findall(r"`([^`]+)`", page) for word in code.split()}
    n_keys = 0
    for path in sorted((root / "ctl").rglob("*.c")):
        if path.name.startswith(("test", "dev", "job_export", "job-export")) or "test" in path.parts:
            continue  # no output: fixtures, dev.json, a safetensors header
        for key in sorted(set(keys_of(path.read_text(encoding="utf-8")))):
            n_keys += 1
            if key not in known:
                yield f"docs/reference/json-output.md: does not name {key} ({path.relative_to(root)})"
    if n_keys < 50:
        yield f"docs/reference/json-output.md: only {n_keys} keys were found in ctl: have they moved?"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    problems = [*check_questions(root), *check_words(root), *check_json(root)]
    for problem in problems:
        print(problem)
    print(f"questions: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
