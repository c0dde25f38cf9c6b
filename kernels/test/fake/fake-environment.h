/* SPDX-License-Identifier: Apache-2.0 */
/* fake-environment.h - what environment variables make a fake library do besides its work: change results, and take
 * time.
 *
 * The clock is the emulated device's stream (emulated-stream.h): a run takes exactly the time in the variable, however
 * busy the machine is. A variable such as FAKE_CUDNN_USEC="1:100,2:99.5" contains the times of engines by their
 * numbers.
 *
 * Ownership: none. Units: microseconds. Errors: none.
 * Threads:   one for each library.
 */
#pragma once

#include "kernels/test/emulator/emulated-stream.h"

#include <stdlib.h>
#include <string.h>

static inline bool fake_is_told(const char *variable, const char *value)
{
    const char *told = getenv(variable);
    return told && strcmp(told, value) == 0;
}

/* Returns the time that the variable gives for `number`, or usec if the variable gives no such time. */
static inline double fake_told(const char *variable, long number, double usec)
{
    const char *at = getenv(variable);
    while (at && *at) {
        char *end;
        const long told = strtol(at, &end, 10);
        const double value = *end == ':' ? strtod(end + 1, &end) : 0;
        if (told == number)
            usec = value;
        at = *end == ',' ? end + 1 : NULL;
    }
    return usec;
}

/* Advances the stream's clock by the time that fake_told() returns for the variable, the number and usec. */
static inline void fake_spend(struct CUstream_st *stream, const char *variable, long number,
                              double usec)
{
    if (stream)
        stream->usec += fake_told(variable, number, usec);
}

/* An object that runs repeatedly, identified by three addresses. */
typedef struct FakeRun {
    const void *of[3];
    int group, runs;
} FakeRun;

/* Returns how often the object has run so far. *ret_number is the number of the object in its group, counted from 1 in
 * the order of first runs. */
static inline int fake_count(const FakeRun *run, int *ret_number)
{
    enum { RUNS = 4096 };
    static FakeRun seen[RUNS];
    static int n;
    int i = 0;
    *ret_number = 1;
    for (; i < n; i++) {
        const void *const *of = seen[i].of;
        if (of[0] == run->of[0] && of[1] == run->of[1] && of[2] == run->of[2])
            return ++seen[i].runs;
        *ret_number += seen[i].group == run->group;
    }
    if (n < RUNS) {
        seen[n] = *run;
        seen[n++].runs = 1;
    }
    return 1;
}
