#!/bin/sh
# test-purity.sh LIBRARY - the core calls nothing but memory functions and the assertion's end.
set -eu
undefined=$(nm -u "$1" | sed -n 's/^ *U //p' | sort -u)
defined=$(nm --defined-only "$1" | sed -n 's/^[0-9a-f]* [A-Z] //p' | sort -u)
bad=0
for symbol in $undefined; do
    case $symbol in
    mem* | __assert_fail) continue ;;
    esac
    echo "$defined" | grep -qx "$symbol" && continue
    echo "$1 calls $symbol" >&2
    bad=1
done
nm "$1" | grep -E ' [bBdD] ' >&2 && { echo "$1 has variables" >&2; bad=1; }
exit $bad
