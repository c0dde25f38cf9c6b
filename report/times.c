/* SPDX-License-Identifier: Apache-2.0 */
/* times.c - see times.h. */
#include "report/times.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

static bool local_time(uint64_t usec, struct tm *ret)
{
    time_t seconds = (time_t)(usec / USEC_PER_SEC);
    return usec > 0 && localtime_r(&seconds, ret);
}

const char *time_text(uint64_t usec, char text[TIME_TEXT_BYTES])
{
    struct tm tm;
    if (!local_time(usec, &tm) || strftime(text, TIME_TEXT_BYTES, "%H:%M:%S", &tm) == 0)
        (void)snprintf(text, TIME_TEXT_BYTES, "-");
    return text;
}

const char *date_text(uint64_t usec, char text[TIME_TEXT_BYTES])
{
    struct tm tm;
    if (!local_time(usec, &tm) || strftime(text, TIME_TEXT_BYTES, "%F %H:%M:%S", &tm) == 0)
        (void)snprintf(text, TIME_TEXT_BYTES, "-");
    return text;
}

const char *span_text(double seconds, char text[SPAN_TEXT_BYTES])
{
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e12) {
        (void)snprintf(text, SPAN_TEXT_BYTES, "?");
        return text;
    }
    const long long s = (long long)(seconds + 0.5);
    if (seconds < 10)
        (void)snprintf(text, SPAN_TEXT_BYTES, "%.2f s", seconds);
    else if (s < 60)
        (void)snprintf(text, SPAN_TEXT_BYTES, "%lld s", s);
    else if (s < 3600)
        (void)snprintf(text, SPAN_TEXT_BYTES, "%lld min %lld s", s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(text, SPAN_TEXT_BYTES, "%lld h %lld min", s / 3600, s % 3600 / 60);
    else
        (void)snprintf(text, SPAN_TEXT_BYTES, "%lld d %lld h", s / 86400, s % 86400 / 3600);
    return text;
}
