/* SPDX-License-Identifier: Apache-2.0 */
/* event-file.h - writes the event files that TensorBoard reads: records with masked checksums, one for each step.
 *
 * Ownership: the stream is borrowed.
 * Units:     wall_sec is CLOCK_REALTIME seconds.
 * Errors:    none; the caller asks ferror().
 * Threads:   any.
 * Source:    TensorFlow's tfrecord framing, event.proto and summary.proto; only the fields that are written here.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct EventScalar {
    const char *tag; /* at most 63 bytes */
    double value;    /* NAN: is left out */
} EventScalar;

enum { EVENT_SCALARS_MAX = 8 };

/* The first record of a file. */
void event_file_begin(FILE *to, double wall_sec);
/* One step's values. */
void event_file_add(FILE *to, double wall_sec, int64_t step, const EventScalar *scalars, size_t n);
