/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - static probes (USDT), at which bpftrace, gdb and perf read values of a running program.
 *
 * PROBE(name, argument, ...) is one nop and a note in the ELF file, of provider `sdtrain`. While nobody
 * looks it costs no more than its arguments, so these are values that are at hand. Where sys/sdt.h was
 * missing at the build, there is no probe.
 * docs/internals/tracing.md lists the probes with their arguments; test-tracing holds the programs to it.
 *
 * Ownership: none; a text that is an argument belongs to the caller.
 * Units:     *_usec is microseconds; an argument is an integer or a pointer, at most six of them.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#if defined(__has_include) && __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define PROBE(name, ...) STAP_PROBEV(sdtrain, name, __VA_ARGS__)
#else
/* Only the compiler looks at its arguments. */
static inline void probe_arguments(int first, ...) { (void)first; }
#define PROBE(name, ...)                                                                           \
    do {                                                                                           \
        if (0)                                                                                     \
            probe_arguments(0, __VA_ARGS__);                                                       \
    } while (0)
#endif
