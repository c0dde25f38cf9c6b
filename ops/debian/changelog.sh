#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes Debian's changelog of ours, so that there is one.
#   changelog.sh MAINTAINER CHANGELOG.md >changelog
# What is not released yet is a version of its own, dated by SOURCE_DATE_EPOCH or the file's time.
set -eu
maintainer=$1 file=$2
awk -v maintainer="$maintainer" -v epoch="${SOURCE_DATE_EPOCH:-$(stat -c %Y "$file")}" '
    function date_of(day,    line) {
        ("LC_ALL=C date -u -R -d " day) | getline line
        return line
    }
    # Puts the text, which began at "- " or at a line of its own, into lines of at most 78 columns.
    function say(    n, words, i, line) {
        n = split(text, words, " ")
        line = "  *"
        for (i = 1; i <= n; i++) {
            if (length(line) + 1 + length(words[i]) > 78) {
                body[sections] = body[sections] line "\n"
                line = "   "
            }
            line = line " " words[i]
        }
        if (n > 0)
            body[sections] = body[sections] line "\n"
        text = ""
    }
    /^## / {
        say()
        sections++
        version[sections] = $2 ~ /^[0-9]/ ? $2 : ""
        day[sections] = substr($3, 2, length($3) - 2)
        next
    }
    !sections { next }
    /^$/ { say(); next }
    /^- / { say(); sub(/^- /, "") }
    { text = text " " $0 }
    END {
        say()
        for (i = 1; i <= sections; i++) {
            if (!body[i])
                continue
            if (version[i])
                printf "sdtrain (%s) stable; urgency=medium\n\n", version[i]
            else
                printf "sdtrain (%s+next) UNRELEASED; urgency=medium\n\n", version[i + 1]
            printf "%s\n -- %s  %s\n", body[i], maintainer, date_of(version[i] ? day[i] : "@" epoch)
            if (i < sections)
                print ""
        }
    }' "$file"
