#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes mutated sources from the table of planted bugs.

usage: mutate.py TABLE SOURCE-ROOT --names           name, checkers and file of each, one a line
       mutate.py TABLE SOURCE-ROOT NAME OUT-FILE     writes the mutated copy of its file
Fails when a mutant's old text does not stand in its file exactly once.
"""
import pathlib
import re
import sys

MUTANT = re.compile(r"^mutant (\S+) (\S+)\nfile (\S+)\n<<<\n(.*?)^===\n(.*?)^>>>\n", re.M | re.S)


def main():
    table, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    text = table.read_text(encoding="utf-8")
    mutants = MUTANT.findall(text)
    if len(mutants) != len(re.findall(r"^mutant ", text, re.M)):
        sys.exit(f"{table}: a mutant is not written as the head of the file says")
    for name, checkers, path, old, new in mutants:
        source = (root / path).read_text(encoding="utf-8")
        if source.count(old) != 1:
            sys.exit(f"{table}: {name}: its old text stands {source.count(old)} times in {path}")
        if sys.argv[3] == "--names":
            print(name, checkers, path)
        elif sys.argv[3] == name:
            pathlib.Path(sys.argv[4]).write_text(source.replace(old, new), encoding="utf-8")


main()
