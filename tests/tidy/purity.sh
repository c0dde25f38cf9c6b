#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# purity.sh LIBRARY... - each calls nothing but memory functions and the assertion's end, and has no variables.
set -eu
bad=0
for library in "$@"; do
    defined=$(nm --defined-only "$library" | sed -n 's/^[0-9a-f]* [A-Za-z] //p' | sort -u)
    for symbol in $(nm -u "$library" | sed -n 's/^ *U //p' | sort -u); do
        case $symbol in
        mem* | __assert_fail | __stack_chk_fail) continue ;;
        esac
        echo "$defined" | grep -qx "$symbol" && continue
        echo "$library: not pure: calls $symbol" >&2
        bad=1
    done
    # Tables of texts lie in .data.rel.ro, which nobody writes once the program runs.
    if nm -f sysv "$library" | sed 's/ //g' | grep -E '\|\.(data|bss)(\.[^|]*)?$' | grep -v '|\.data\.rel\.ro' >&2; then
        echo "$library: not pure: has variables" >&2
        bad=1
    fi
done
exit $bad
