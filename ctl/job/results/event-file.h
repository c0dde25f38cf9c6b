/* SPDX-License-Identifier: Apache-2.0 */
/* event-file.h - writes event files for TensorBoard: one record per step, with masked checksums.
 *
 * Ownership: the stream is borrowed.
 * Units:     wall_sec is CLOCK_REALTIME seconds.
 * Errors:    none; the caller checks ferror().
 * Threads:   any.
 * Source:    TensorFlow's tfrecord framing, event.proto and summary.proto; only the fields that this module writes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct EventScalar {
    const char *tag; /* at most 63 bytes */
    double value;    /* NAN: the scalar is omitted */
} EventScalar;

enum { EVENT_SCALARS_MAX = 8 };

/* Writes the first record of a file. */
void event_file_begin(FILE *to, double wall_sec);
/* Writes the record of one step. */
void event_file_add(FILE *to, double wall_sec, int64_t step, const EventScalar *scalars, size_t n);
