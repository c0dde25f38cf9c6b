/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - see progress.h. */
#include "prep/encode/progress.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>

enum { EVERY_USEC = 10000000 };

void progress_begin(Progress *p, uint64_t all_bytes, double cost_per_hour)
{
    *p = (Progress){.all_bytes = all_bytes, .cost_per_hour = cost_per_hour};
    p->start_usec = p->told_usec = clock_boottime_usec();
}

void progress_add(Progress *p, const PartReport *part)
{
    p->n_looked += part->n_raw;
    p->n_rejected += (int64_t)part->n_rows;
    for (size_t i = 0; i < part->n_rows; i++)
        reasons_add(&p->reasons, part->rows[i].reason, 1);
}

static int format_time(double seconds, char *text, size_t size)
{
    uint64_t s = seconds < 1e9 ? (uint64_t)seconds : (uint64_t)1e9;
    if (s >= 86400)
        return snprintf(text, size, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
    return snprintf(text, size, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60,
                    s % 60);
}

const char *progress_format(const Progress *whole, const ProgressPart *under_way, uint64_t now,
                            char text[PROGRESS_LINE_MAX])
{
    Progress with = *whole, *p = &with;
    if (under_way->part)
        progress_add(p, under_way->part);
    char reasons[300], left[48] = "unknown", cost[96] = "", units[128] = "";
    const int64_t n_bad = input_totals_bad(&p->input);
    double seconds = (double)(now - p->start_usec) / (double)USEC_PER_SEC;
    double done = (double)p->bytes + under_way->fraction * (double)under_way->unit_bytes;
    double mine = done - (double)p->bytes_before;
    double rest = mine > 0 ? seconds * ((double)p->all_bytes - done) / mine : -1;
    if (rest >= 0)
        (void)format_time(rest, left, sizeof(left));
    if (p->cost_per_hour > 0)
        (void)snprintf(cost, sizeof(cost), rest >= 0 ? "; cost %.2f, in all %.2f" : "; cost %.2f",
                       seconds / 3600 * p->cost_per_hour,
                       (seconds + rest) / 3600 * p->cost_per_hour);
    if (n_bad > 0 || p->n_aside > 0)
        (void)snprintf(units, sizeof(units),
                       "; of %" PRId64 " units %" PRId64
                       " damaged, without an end or a sample; set aside: %zu",
                       p->input.n_units + (int64_t)p->n_aside, n_bad, p->n_aside);
    (void)snprintf(text, PROGRESS_LINE_MAX,
                   "%" PRId64 " samples, %.1f a second, %.1f %% of the input; left %s; %" PRId64
                   " rejected (%s)%s%s",
                   p->n_looked, seconds > 0 ? (double)p->n_looked / seconds : 0,
                   p->all_bytes ? 100 * done / (double)p->all_bytes : 100, left, p->n_rejected,
                   reasons_format(&p->reasons, reasons, sizeof(reasons)), units, cost);
    return text;
}

void progress_report(Progress *p, const ProgressPart *under_way, bool always)
{
    char text[PROGRESS_LINE_MAX];
    uint64_t now = clock_boottime_usec();
    if (!always && now - p->told_usec < EVERY_USEC)
        return;
    p->told_usec = now;
    log_info("%s", progress_format(p, under_way, now, text));
}
