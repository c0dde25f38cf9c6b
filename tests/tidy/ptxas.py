#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at what ptxas said of each kernel of the CUDA module: no kernel keeps registers or arrays in memory, and a
multiprocessor has room for two blocks of it.

    tests/tidy/ptxas.py TABLE OBJECT...     OBJECT.ptxas: what kernels/cuda/keep-report kept; writes TABLE, for people

A spill or a stack is memory that every thread reads and writes beside what the kernel is for. The registers themselves
may change with any line of a kernel or another compiler, so only a limit holds: TABLE has them, to compare by eye.
"""
import re
import subprocess
import sys

REGISTERS, BLOCK = 65536, 256  # of a multiprocessor; the threads of kernel.cuh's blocks
LIMIT = REGISTERS // (2 * BLOCK)
MORE = {}  # a kernel's name to its own limit, with a reason: why one block is enough for it


def demangled(names):
    try:
        done = subprocess.run(["c++filt", *names], check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return names
    return [re.sub(r"^void ", "", name.partition("(")[0]) for name in done]


def kernels_of(path):
    """(name, registers, shared bytes, stack bytes, bytes of spills) of each function; registers of a kernel alone."""
    found, name = {}, None
    with open(path, encoding="utf-8") as file:
        for line in file:
            if match := re.search(r"Function properties for (\S+)", line):
                name = match.group(1)
                found[name] = {"registers": 0, "shared": 0, "stack": None, "spills": None}
            elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
                found[name].update(stack=int(match.group(1)), spills=int(match.group(2)) + int(match.group(3)))
            elif match := re.search(r"Used (\d+) registers", line):
                shared = re.search(r"(\d+) bytes smem", line)
                found[name].update(registers=int(match.group(1)), shared=int(shared.group(1)) if shared else 0)
    return found


def problems_of(name, kernel):
    limit = MORE.get(name, LIMIT)
    if kernel["stack"] is None:
        yield "ptxas said nothing of its stack"
    elif kernel["stack"] or kernel["spills"]:
        yield f"{kernel['stack']} bytes of stack, {kernel['spills']} of spills"
    if kernel["registers"] > limit:
        yield f"{kernel['registers']} registers a thread, at most {limit}"


def main(table, objects):
    problems, lines = [], []
    for path in objects:
        if not path.endswith(".cu.o"):
            continue
        try:
            found = kernels_of(path + ".ptxas")
        except OSError as error:
            found = {}
            problems.append(str(error))
        if not found:
            problems.append(f"{path}: no kernel was reported")
        for name, kernel in zip(demangled(list(found)), found.values()):
            problems += [f"{name}: {problem}" for problem in problems_of(name, kernel)]
            lines.append(f"{kernel['registers']:4} registers {kernel['shared']:6} bytes shared {kernel['stack']:4} stack "
                         f"{kernel['spills']:4} spills  {name}")
    if not lines:
        problems.append("no object of a kernel")
    with open(table, "w", encoding="utf-8") as file:
        file.write("\n".join(sorted(lines, reverse=True)) + "\n")
    print("\n".join(problems + [f"ptxas: {len(lines)} functions, {len(problems)} problems; registers: {table}"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
