/* SPDX-License-Identifier: Apache-2.0 */
/* input.h - the list of the units of a dataset's input, by name, size and version: encoding/input.json.
 *
 * The first process that works in a folder puts the list of the units that it found, before anything else. All other
 * processes, and the first one after a restart, compare the units that they find with this list: otherwise a unit that
 * was replaced meanwhile would be mixed with the old unit unnoticed.
 *
 * A version is the result of store_version(): an ETag, or a file's inode, time and size. A copy of a file keeps at most
 * time and size, and some mounts (FUSE) number files differently each time. If only the inode differs, the unit is
 * taken for the same, and its encoded samples are read again and compared (unit.c).
 *
 * Ownership: an InputList owns its texts; input_list_clear() frees them.
 * Units:     bytes.
 * Errors:    input_list_parse(): -EINVAL a text that is not a list of units, with its source and key; -ENOMEM.
 *            input_list_compare(): -EEXIST another input, with the first difference.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"
#include "prep/raw/raw-set.h"

typedef struct InputUnit {
    char *name; /* UTF-8; invalid bytes were replaced by U+FFFD */
    int64_t n_bytes;
    char *version; /* the result of raw_set_unit_version(); "": no version */
} InputUnit;

typedef struct InputList {
    InputUnit *units;
    size_t n_units, room;
    Hash index; /* hash of index.json; zeros: the units are tars */
    Hash file;  /* hash of the text that was parsed; zeros: the list was not parsed */
} InputList;

void input_list_of(const RawSet *set, InputList *ret);
void input_list_clear(InputList *list);
/* Returns the list as text, which depends only on the list; the caller frees it. */
char *input_list_format(const InputList *list);
int input_list_parse(const char *source, const char *text, size_t n_bytes, InputList *ret,
                     Error *err);

/* Checks that both lists name the same units of the same sizes; versions are not compared. uri: the folder with the
 * list `there`. */
int input_list_compare(const InputList *there, const InputList *ours, const char *uri, Error *err);

typedef enum InputChange {
    INPUT_SAME,    /* the same version, or a version is not known */
    INPUT_COPIED,  /* a file with the same time and size, but another inode */
    INPUT_CHANGED, /* another object */
} InputChange;
InputChange input_compare_versions(const char *noted, const char *now);
