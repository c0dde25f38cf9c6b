/* SPDX-License-Identifier: Apache-2.0 */
/* times.h - formats points in time and durations for people.
 *
 * Ownership: the caller's buffer is returned.
 * Units:     usec is CLOCK_REALTIME microseconds; seconds otherwise.
 * Errors:    none.
 */
#pragma once

#include "base/macro.h"

enum { TIME_TEXT_BYTES = 32, SPAN_TEXT_BYTES = 24 };

/* These functions write the local time as "14:03:59" or as "2026-01-31 14:03:59", or "-" for 0, and return text. */
const char *time_text(uint64_t usec, char text[TIME_TEXT_BYTES]);
const char *date_text(uint64_t usec, char text[TIME_TEXT_BYTES]);
/* Writes a duration as "0.42 s", "12 s", "3 min 20 s", "5 h 10 min" or "3 d 4 h", and returns text. */
const char *span_text(double seconds, char text[SPAN_TEXT_BYTES]);
