/* SPDX-License-Identifier: Apache-2.0 */
/* output.h - passes a program's output on, and reads it on the way: values of secrets are masked, patterns find step
 * and loss, and the last lines stay for the judgement of the program's end.
 *
 * The runner reads only what it could write: a program that prints faster than its log is written waits.
 *
 * Ownership: output_open() fills an Output, a value that must not move, and takes over `from`; `to` is borrowed.
 *            output_close() accepts a zeroed one.
 * Units:     bytes.
 * Errors:    none: what cannot be written is dropped.
 * Threads:   one.
 */
#pragma once

#include "base/text/secret-set.h"

#include <poll.h>
#include <regex.h>
#include <stdint.h>

enum { OUTPUT_LINE_MAX = 4096, OUTPUT_TAIL_MAX = 16384, OUTPUT_PIECE_MAX = 65536 };

typedef enum OutputNumber { OUTPUT_STEP, OUTPUT_LOSS } OutputNumber;

typedef struct OutputPatterns {
    const char *step, *loss; /* NULL: not looked for */
    void (*found)(void *userdata, OutputNumber kind, const char *number);
    void *userdata;
} OutputPatterns;

typedef struct Output {
    bool is_open;
    int from, to;
    const SecretSet *secrets; /* NULL: none */
    OutputPatterns patterns;
    regex_t step, loss;
    /* Bytes `at` to `ready` wait to be written. Bytes `ready` to `n` are a line that has no end yet, in which a
     * secret may be incomplete. */
    char piece[OUTPUT_PIECE_MAX];
    size_t at, ready, n;
    char line[OUTPUT_LINE_MAX + 1]; /* for patterns: the line that has no end yet */
    size_t line_bytes;
    bool line_is_cut;               /* the rest of a line that was too long is passed over */
    char tail[OUTPUT_TAIL_MAX + 1]; /* the last output */
    size_t tail_bytes;
    uint64_t n_read; /* bytes read so far */
} Output;

void output_open(Output *o, int from, int to, const SecretSet *secrets,
                 const OutputPatterns *patterns);
void output_close(Output *o);
/* Fills in what to wait for: 0 or 1 entry. */
size_t output_poll(const Output *o, struct pollfd *ret);
/* Writes what waits, and reads more when nothing waits. Does not block if `from` is non-blocking. Returns false once
 * the program has closed its output and all is written. */
bool output_move(Output *o);
/* Ends the last line, which may lack a newline. Returns the last output: at most OUTPUT_TAIL_MAX bytes, made printable
 * but for its newlines. */
const char *output_end(Output *o);
