/* SPDX-License-Identifier: Apache-2.0 */
/* fields.h - what fields-records.c and fields-channel.c share: every field of every kind, written and read.
 *
 * A *line* is "<kind>\t<JSON object>". A reader of a line of another version must hold what the line
 * says: each member comes out again as it went in. A member that the reader does not know is not an error and, in a
 * record, is kept.
 *
 * Ownership: fields_line() borrows; the objects given to fields_holds() stay the caller's.
 * Units:     none.
 * Errors:    functions that read print what is wrong, "<kind>: <path>: <what>", and return how much.
 * Threads:   main only.
 */
#pragma once

#include "base/json/json.h"

/* Prints "<kind>\t<text>". */
void fields_line(const char *kind, const char *text);
/* Does `now` have every member that `then` has, with its value? Prints those that it lacks; returns how many. */
int fields_holds(const char *kind, const char *path, const json_t *then, const json_t *now);
/* A text of its own for the field of that name, and for the i-th element of a list. */
void fields_text(const char *name, int i, char *ret, size_t size);

/* Every kind of record: each field filled in, each word of a choice once, and once without what is optional. */
void records_write(void);
/* -1: not a kind of record. Else how much is wrong with it.
   newer: fields that are not known here need only come back over their own text. */
int records_read(const char *kind, const char *text, bool newer);

/* Every message between daemon and trainer, likewise. */
void channel_write(void);
int channel_read(const char *kind, const char *text, bool newer);
