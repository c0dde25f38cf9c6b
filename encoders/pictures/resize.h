/* SPDX-License-Identifier: Apache-2.0 */
/* resize.h - Pillow's resize, and the square in the middle of its result.
 *
 * The picture is filtered in two passes, first along rows, then along columns, with 8 bits between them; a pass that
 * changes no size is left out. Weights are computed in double with only + - * / and rounded to 22 bits, and pixels are
 * summed in integers: so the bytes are the same on every machine, and the same as Pillow's (a comment in
 * src/libImaging/Resample.c claims this, too).
 *
 * Units: pixels of 3 bytes. Errors: -ENOMEM.
 * Ownership: the caller's buffers.
 */
#pragma once

#include "encoders/pictures/picture-decode.h"

/* Scales width x height so that the shorter side is `side`, and fills ret[side * side * 3] with the square at
 * floor((size - side) / 2). Only the pixels that the square needs are computed. */
int resize_to_square(const uint8_t *rgb, int width, int height, PictureResample resample, int side,
                     uint8_t *ret, Error *err);
