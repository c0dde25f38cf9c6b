/* SPDX-License-Identifier: Apache-2.0 */
/* fields.h - declarations for fields-records.c and fields-channel.c, which write and read every field of every kind.
 *
 * A *line* is "<kind>\t<JSON object>". The program reads a line of another version and writes it again: each member
 * must have the same value in the result. A member that the reader does not know is not an error; in a record the
 * member is kept.
 *
 * Units: none. Threads: main only.
 * Ownership: fields_line() borrows; the objects given to fields_holds() stay the caller's.
 * Errors:    functions that read print what is wrong, "<kind>: <path>: <what>", and return the number of errors.
 */
#pragma once

#include "base/json/json.h"

/* Prints "<kind>\t<text>". */
void fields_line(const char *kind, const char *text);
/* Checks that `now` has every member of `then`, with the same value. Prints the members that `now`
 * lacks, and returns how many it lacks. */
int fields_holds(const char *kind, const char *path, const json_t *then, const json_t *now);
/* Writes a text that differs for each field name, and for each element i of a list. */
void fields_text(const char *name, int i, char *ret, size_t size);

/* Writes records of every kind: one for each value of a field with a choice of words, with all fields
 * filled in, and one without the optional fields. */
void records_write(void);
/* Reads a line. Returns -1 if the line's kind is not a kind of record, else the number of errors.
 * newer: a newer version wrote the line, so unknown fields need to be kept only when the result is
 * written over the old text. */
int records_read(const char *kind, const char *text, bool newer);

/* As records_write() and records_read(), but for every message between daemon and trainer. */
void channel_write(void);
int channel_read(const char *kind, const char *text, bool newer);
