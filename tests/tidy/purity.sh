#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# purity.sh LIBRARY... [-- LIBRARY...] - the first are pure: they call nothing but memory functions and the assertion's
# end. The others run without a process around them: they call each other, what a simulator also has (etcd, the loop's
# timers, the clock, the log) and what works in memory alone. None of all of them has variables.
set -eu
bad=0

# A name that is refused here either joins the list, because it does nothing outside memory, or becomes a need that is
# handed in. allows RULE SYMBOL
allows() {
    case $2 in
    mem* | __assert_fail | __stack_chk_fail) return 0 ;;
    esac
    [ "$1" = apart ] || return 1
    case $2 in
    etcd_new | etcd_free | etcd_options_* | etcd_*_wait) return 1 ;;   # the client is handed in
    json_load* | json_dump_file | json_dumpf* | json_open) return 1 ;; # files
    log_open | log_use_journal | log_set_*) return 1 ;;                # the process's log
    etcd_* | clock_* | log_* | fault | sd_event_add_time* | sd_event_source_* | sd_event_ref | sd_event_unref) return 0 ;;
    cluster_* | feed_* | journal_record_* | decision_log_* | rights_* | key_* | *_record_* | name_is_valid) return 0 ;;
    node_knows | job_parse_any | job_free | secret_* | hash64_* | hash_* | memory_* | error_* | json_*) return 0 ;;
    wire_* | process_* | rank_log_* | orphans_owner_tag | channel_* | timer_* | watchdog_*) return 0 ;; # replaced, as etcd is
    fence_is_due | occupant_judge) return 0 ;;
    exit_judge | exit_*_text | exit_code_class | plan_ranks | checkpoints_append | *_name | sigabbrev_np) return 0 ;;
    str* | printable_* | snprintf | vsnprintf | __snprintf_chk | __vsnprintf_chk | *explicit_bzero* | bcmp | free | gmtime_r) return 0 ;;
    calloc | qsort | protobuf_c_*) return 0 ;;
    malloc_usable_size | _GLOBAL_OFFSET_TABLE_) return 0 ;; # of _FORTIFY_SOURCE; of the linker
    esac
    return 1
}

defines() {
    nm --defined-only "$@" | sed -n 's/^[0-9a-f]* [A-Za-z] //p' | sort -u
}

rule=pure
wrong="not pure"
for library in "$@"; do
    shift
    if [ "$library" = -- ]; then
        rule=apart
        wrong="tied to a process"
        apart=$(defines "$@")
        continue
    fi
    defined=$([ $rule = pure ] && defines "$library" || echo "$apart")
    for symbol in $(nm -u "$library" | sed -n 's/^ *U //p' | sort -u); do
        if allows "$rule" "$symbol" || echo "$defined" | grep -qx "$symbol"; then
            continue
        fi
        echo "$library: $wrong: calls $symbol" >&2
        bad=1
    done
    # Tables of texts lie in .data.rel.ro, which nobody writes once the program runs.
    if nm -f sysv "$library" | sed 's/ //g' | grep -E '\|\.(data|bss)(\.[^|]*)?$' | grep -v '|\.data\.rel\.ro' >&2; then
        echo "$library: $wrong: has variables" >&2
        bad=1
    fi
done
exit $bad
