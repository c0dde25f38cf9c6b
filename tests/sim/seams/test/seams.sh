#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# seams.sh PROGRAM... - a program that links the seams asks no library for events, a network, a clock or chance.
set -eu
bad=0
for program in "$@"; do
    for symbol in $(nm -D --undefined-only "$program" | sed -n 's/^ *U \([^@]*\).*/\1/p'); do
        case $symbol in
        sd_event_* | grpc_* | clock_gettime | gettimeofday | time | getrandom | rand | random | pthread_create | eventfd)
            echo "$program: reaches past the seams: $symbol" >&2
            bad=1
            ;;
        esac
    done
done
exit $bad
