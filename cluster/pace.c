/* SPDX-License-Identifier: Apache-2.0 */
/* pace.c - see pace.h. */
#include "cluster/pace.h"

#include <math.h>

double progress_pace_sec(const ProgressRecord *p)
{
    if (p->step > 0 && p->samples_seen > 0 && p->samples_per_sec > 0)
        return (double)p->samples_seen / (double)p->step / p->samples_per_sec;
    return p->step_sec > 0 ? p->step_sec : 0;
}

double progress_to_go_sec(const ProgressRecord *p, int64_t steps)
{
    const double pace_sec = progress_pace_sec(p);
    const bool is_known = steps > 0 && p->step > 0 && pace_sec > 0;
    return is_known ? (double)MAX(steps - p->step, 0) * pace_sec : NAN;
}
