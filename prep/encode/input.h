/* SPDX-License-Identifier: Apache-2.0 */
/* input.h - the units that a dataset is made of, by name, size and version: encoding/input.json.
 *
 * The first process that works in a folder puts the list that it has found, before anything else. All others, and later
 * lives of the same one, compare what they find with it: else a unit that was exchanged between two of them would be
 * mixed with the former one without a word.
 *
 * A version is what store_version() gives: an ETag, or a file's inode, time and size. A copy of a file keeps time and
 * size at most, and some mounts (FUSE) number files anew each time: where only the inode is another one, the unit is
 * taken for the same, and what was encoded of it is read again and compared (unit.c).
 *
 * Ownership: an InputList owns its texts; input_list_clear() frees them.
 * Units:     bytes.
 * Errors:    input_list_parse(): -EINVAL a text that is not such a list, with its source and key; -ENOMEM.
 *            input_list_compare(): -EEXIST another input, with what differs first.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"
#include "prep/raw/raw-set.h"

typedef struct InputUnit {
    char *name; /* UTF-8; bytes that were not are U+FFFD */
    int64_t n_bytes;
    char *version; /* "": it has none, as raw_set_unit_version() says */
} InputUnit;

typedef struct InputList {
    InputUnit *units;
    size_t n_units, room;
    Hash index; /* of index.json; zeros: the units are tars */
    Hash file;  /* of the text that was parsed; zeros: none was */
} InputList;

void input_list_of(const RawSet *set, InputList *ret);
void input_list_clear(InputList *list);
/* The text is the caller's, and a function of the list. */
char *input_list_format(const InputList *list);
int input_list_parse(const char *source, const char *text, size_t n_bytes, InputList *ret,
                     Error *err);

/* Tells whether both lists name the same units, whatever their versions. uri: of the folder that `there` lies in. */
int input_list_compare(const InputList *there, const InputList *ours, const char *uri, Error *err);

typedef enum InputChange {
    INPUT_SAME,    /* or nothing is known */
    INPUT_COPIED,  /* a file with the same time and size, and another inode */
    INPUT_CHANGED, /* another object */
} InputChange;
InputChange input_compare_versions(const char *noted, const char *now);
