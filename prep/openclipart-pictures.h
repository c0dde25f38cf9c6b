/* SPDX-License-Identifier: Apache-2.0 */
/* openclipart-pictures.h - lists the pictures of Debian's openclipart packages in a fixed order, and reads their
 * captions.
 *
 * Ownership: openclipart_list() fills an OpenclipartPaths that openclipart_paths_clear() empties; captions are the
 *            caller's, to be freed.
 * Units:     none.
 * Errors:    -ENOENT the packages are not installed; -ENOMEM.
 * Threads:   openclipart_list(): one at a time. openclipart_read_caption(): any.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

typedef struct OpenclipartPaths {
    char **paths;
    size_t n, room;
} OpenclipartPaths;

/* Finds every PNG below source/png whose sides are both at least 64 pixels, sorted by path; n > 0: only n of them,
 * spread evenly. */
int openclipart_list(const char *source, int64_t n, OpenclipartPaths *ret, Error *err);
void openclipart_paths_clear(OpenclipartPaths *paths);

/* Reads the caption of png/A/B.png from svg/A/B.svg; if the SVG has no caption, the result is the picture's file
 * name. */
int openclipart_read_caption(const char *source, const char *path, char **ret);
