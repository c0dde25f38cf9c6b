/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h - pictures of one size side by side, as a PNG file with notes of what they are.
 *
 * Ownership: the caller's buffers.
 * Units:     pixels; a picture is height x width x 3 RGB bytes.
 * Errors:    -ENOMEM; -EFBIG a grid that is too large; -EIO naming the file. grid_check(): -EINVAL naming it.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"
#include "protocol/grid-notes.h"

/* Could a file of that name be written? Drawing takes hours, and must not end with a folder that is not there. */
int grid_check(const char *option, const char *path, Error *err);
int grid_write(const char *path, const GridNotes *notes, int n, int height, int width,
               const uint8_t *pixels, Error *err);
