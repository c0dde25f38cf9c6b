#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fills a manual page with what the programs themselves say, so that it cannot say anything else.
#   fill.sh PAGE.in PROGRAM REFERENCE >PAGE      REFERENCE: the folder docs/reference
# @SETTINGS@ settings as PROGRAM --help lists them; @VERBS@ the help of each verb; @JOB@, @EXEC-JOB@,
# @METRICS part@, @RECORDS@ the tables of docs/reference, which the programs print.
set -eu
page=$1 program=$2 reference=$3

# text as roff takes it: no escapes, no macros
functions='
    function plain(text) { gsub(/\\/, "\\e", text); return text ~ /^[.\047]/ ? "\\&" text : text }
    function sentence(text) { return plain(toupper(substr(text, 1, 1)) substr(text, 2) ".") }'

settings() {
    "$program" --help | awk "$functions"'
        /^ +--help, --version/ { on = 1; next }
        on && /^ +--/ {
            key = substr($1, 3); gsub(/-/, "_", key)
            sub(/^ +--[a-z0-9-]+ +/, "")
            reloads = sub(/ \*$/, "")
            print ".It Va " key
            print sentence($0)
            if (reloads) print "Taken over at a reload."
        }'
}

verbs() {
    "$program" --help | awk '/^  [a-z]/ && match($0, /^  [a-z-]+( [a-z-]+)?/) { print substr($0, 3, RLENGTH - 2) }' |
        while read -r verb; do
            printf '.Sh %s\n.Bd -literal\n' "$(echo "$verb" | tr '[:lower:]' '[:upper:]')"
            # shellcheck disable=SC2086  # a verb is one word or two
            "$program" $verb --help | awk "$functions"'/^Exit codes/ { exit } { print plain($0) }' | sed 's/^usage: //'
            printf '.Ed\n'
        done
}

job() { # part
    awk -v part="$1" "$functions"'
        /^<!-- / { on = $0 == "<!-- begin: " part " -->" }
        on && /^\| `/ {
            gsub(/\[/, ""); gsub(/\]\([^)]*\)/, ""); gsub(/`/, ""); split($0, cell, / *\| */)
            print ".It Va " cell[2]
            if (cell[3] != "") print plain("(" cell[3] ")")
            if (cell[4] != "") print sentence(cell[4])
        }' "$reference/job-file.md"
}

metrics() { # part
    awk -v part="$1" "$functions"'
        /^<!-- / { on = $0 == "<!-- begin: metrics " part " -->" }
        on && /^\| `/ {
            gsub(/`/, ""); split($0, cell, / *\| */)
            print ".It Va " cell[2]
            print plain(cell[5] " (" cell[3] (cell[4] != "" ? "; " cell[4] : "") ")")
        }' "$reference/metrics.md"
}

# A section for each kind: what it is, and its fields. A field of a field is a table of its own.
records() {
    awk "$functions"'
        function close_list() { if (listing) print ".El"; listing = 0 }
        /^<!-- / { if (on) close_list(); on = $0 == "<!-- begin: records -->"; next }
        on && /^#/ { close_list(); sub(/^#+ /, ""); gsub(/`/, ""); print ".Sh " toupper($0); head = 1; next }
        on && head && /^\| `/ {
            if (!listing) { print ".Bl -tag -width indent"; listing = 1 }
            gsub(/`/, ""); gsub(/\[/, ""); gsub(/\]\([^)]*\)/, ""); split($0, cell, / *\| */)
            print ".It Va " cell[2] " ( " cell[3] (cell[4] == "yes" ? ", required" : "") " )"
            if (cell[5] != "") print sentence(cell[5])
            next
        }
        on && head && /^[^|]/ { close_list(); gsub(/`/, ""); gsub(/\[/, ""); gsub(/\]\([^)]*\)/, ""); print plain($0) }
    ' "$reference/etcd-records.md"
}

while IFS= read -r line; do
    case $line in
    @SETTINGS@) settings ;;
    @VERBS@) verbs ;;
    @JOB@) job job ;;
    @EXEC-JOB@) job exec-job ;;
    @METRICS*) part=${line#@METRICS } && metrics "${part%@}" ;;
    @RECORDS@) records ;;
    *) printf '%s\n' "$line" ;;
    esac
done <"$page"
