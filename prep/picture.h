/* SPDX-License-Identifier: Apache-2.0 */
/* picture.h - reads PNG files as planes of floats, fitted into a white square.
 *
 * Ownership: the caller owns the buffers.
 * Units:     pixels; floats in [-1, 1], planes of R, G, B.
 * Errors:    -EBADMSG the file is not a PNG or is broken; -EFBIG it has too many pixels; -errno.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

enum { PICTURE_SIDE_MAX = 16384, PICTURE_PIXELS_MAX = 1 << 26 };

/* Reads the size from the PNG's header; the pixels are not decoded. */
int picture_size(const char *path, int *ret_width, int *ret_height, Error *err);

/* Reads a picture, composes it on white, scales it so that all of it fits side x side (each target pixel is the
 * average of the area it covers), and centres it. ret has 3 * side * side floats. */
int picture_read(const char *path, int side, float *ret, Error *err);
