/* SPDX-License-Identifier: Apache-2.0 */
/* resume.h - the step that a world goes on from, as far as its record tells.
 *
 * For the core as for programs: no I/O, no memory, nothing of the C library.
 *
 * Ownership: the caller's record.
 * Units:     steps.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "cluster/records.h"

/* Of another job's checkpoint (--resume) the record has no step: its folder's name says it, "step-", ten
 * digits, "-" (docs/reference/manifest.md). Where it has another name nothing does: 0. For
 * people, and for what is counted from there; what the ranks restored, they say themselves. */
static inline int64_t resume_point_step(const ResumePoint *resume)
{
    static const char word[] = "/step-";
    enum { DIGITS_MAX = 18 };
    int64_t found = 0;
    for (const char *p = resume->uri; resume->adopt && *p; p++) {
        size_t n = 0, digits = 0;
        int64_t step = 0;
        while (n < sizeof(word) - 1 && p[n] == word[n])
            n++;
        if (n < sizeof(word) - 1)
            continue;
        for (; digits < DIGITS_MAX && p[n] >= '0' && p[n] <= '9'; n++, digits++)
            step = step * 10 + (p[n] - '0');
        if (digits > 0 && p[n] == '-')
            found = step;
    }
    return resume->adopt ? found : resume->step;
}
