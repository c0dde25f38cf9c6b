/* SPDX-License-Identifier: Apache-2.0 */
/* picture.h - PNG files as planes of floats, fitted into a square on white.
 *
 * Ownership: the caller's buffers.
 * Units:     pixels; floats in [-1, 1], planes of R, G, B.
 * Errors:    -EBADMSG a file that is not a PNG or broken; -EFBIG one that is too large; -errno.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

enum { PICTURE_SIDE_MAX = 16384, PICTURE_PIXELS_MAX = 1 << 26 };

/* Reads only the header. */
int picture_size(const char *path, int *ret_width, int *ret_height, Error *err);

/* Reads a picture, composes it on white, scales it so that all of it fits side x side (each target pixel is the
 * average of the area it covers), and centres it. ret has 3 * side * side floats. */
int picture_read(const char *path, int side, float *ret, Error *err);
