/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h - puts pictures of one size side by side into a PNG, with notes that describe them.
 *
 * Ownership: the caller's buffers; grid_encode() gives the caller the PNG.
 * Units:     pixels; a picture is height x width x 3 RGB bytes.
 * Errors:    -ENOMEM; -EFBIG: the grid is too large; -EIO: the file cannot be written. grid_check(): -EINVAL. The text
 *            names the file.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"
#include "protocol/grid-notes.h"

/* Checks whether a file of that name can be written. Drawing takes hours, and should not fail at its end because of a
 * missing folder. */
int grid_check(const char *option, const char *path, Error *err);
int grid_encode(const GridNotes *notes, int n, int height, int width, const uint8_t *pixels,
                char **ret, size_t *ret_bytes, Error *err);
/* Writes a PNG directly under its final name: the folder may not allow another file. */
int grid_write(const char *path, const char *png, size_t n_bytes, Error *err);
