/* SPDX-License-Identifier: Apache-2.0 */
/* resume.h - the step from which a world resumes, as its record tells.
 *
 * The core and the programs share this file, so it does no I/O, allocates nothing and calls no C library.
 *
 * Ownership: the caller's record. Units: steps.
 */
#pragma once

#include "cluster/records.h"

/* Returns the step from which the world resumes. A checkpoint of another job (--resume) has no step in the record, so
 * the step is parsed from the folder's name: "step-", ten digits, "-" (docs/reference/manifest.md). Returns 0 if the
 * name has another form. The result is only for display and for counting; ranks report the step that they have really
 * restored. */
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
