/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h - static probes (USDT), at which bpftrace, gdb and perf read values of a running program.
 *
 * PROBE(name, argument, ...) is one nop and a note in the ELF file, of provider `sdtrain`. While no tracer is
 * attached, a probe costs only the evaluation of its arguments, so they should be values that the code has already.
 * A build without sys/sdt.h has no probes.
 * docs/internals/tracing.md lists the probes with their arguments; test-tracing checks the programs against this list.
 *
 * Ownership: none; a text that is an argument belongs to the caller.
 * Units:     *_usec is microseconds; a probe has at most six arguments, each an integer or a pointer.
 */
#pragma once

#if defined(__has_include) && __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define PROBE(name, ...) STAP_PROBEV(sdtrain, name, __VA_ARGS__)
#else
/* Never called: it only makes the compiler check the arguments. */
static inline void probe_arguments(int first, ...) { (void)first; }
#define PROBE(name, ...)                                                                           \
    do {                                                                                           \
        if (0)                                                                                     \
            probe_arguments(0, __VA_ARGS__);                                                       \
    } while (0)
#endif
