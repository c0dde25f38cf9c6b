/* SPDX-License-Identifier: Apache-2.0 */
/* picture-decode.h - a picture file's bytes become side x side RGB bytes, as Pillow makes them.
 *
 * The bytes say what kind of file it is; no name is asked. Then, in this order: the orientation of EXIF is applied;
 * grey, palettes, 16 bit (the high byte) and CMYK become 8-bit RGB; what has alpha is composed on white; the shorter
 * side is scaled to `side`, the longer one to floor(side * longer / shorter), by Pillow's resize; the square in the
 * middle is cut out. docs/internals/pictures.md lists where we differ from Pillow, and why.
 *
 * A verdict is a function of the bytes and the recipe.
 *
 * Ownership: the caller's buffers.
 * Units:     pixels, bytes; rows from the top, pixels from the left, R G B.
 * Errors:    0; a PictureVerdict, with its text in err, whose code is then -EBADMSG; -ENOMEM; -EINVAL a recipe that no
 *            picture can be decoded with.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

typedef enum PictureResample { PICTURE_BILINEAR, PICTURE_BICUBIC } PictureResample;

typedef enum PictureVerdict {
    PICTURE_EMPTY = 1, /* no bytes */
    PICTURE_DECODE,    /* no picture of a kind that we read, or a broken one */
    PICTURE_TRUNCATED, /* the bytes end before the picture does */
    PICTURE_TOO_SMALL, /* the shorter side is below min_side */
    PICTURE_TOO_LARGE, /* more than max_pixels, than PICTURE_FILE_BYTES_MAX, or than 2^23 in a row of PNG */
    PICTURE_ASPECT, /* longer / shorter is above max_aspect */
    PICTURE_ANIMATED,
} PictureVerdict;

enum {
    PICTURE_N_VERDICTS = PICTURE_ANIMATED + 1, /* 0, which is none, counted */
    PICTURE_FILE_BYTES_MAX = 1 << 26,
    PICTURE_RECIPE_PIXELS_MAX = 1 << 26, /* the largest max_pixels */
    PICTURE_RECIPE_SIDE_MAX = 4096,      /* the largest side */
};

typedef struct PictureRecipe {
    int side;
    PictureResample resample;
    int64_t max_pixels;
    double max_aspect; /* 0: any */
    int min_side;      /* 0: any; smaller pictures are scaled up */
} PictureRecipe;

/* side 256, bilinear, 2^25 pixels, any aspect, any side */
extern const PictureRecipe picture_recipe_default;

/* -EINVAL, with the field and its value. */
int picture_recipe_check(const PictureRecipe *recipe, Error *err);

/* Fills ret_rgb[side * side * 3]; after anything but 0 it holds anything. */
int picture_decode(const PictureRecipe *recipe, const void *data, size_t n_bytes, uint8_t *ret_rgb,
                   Error *err);

/* "empty", "decode", "truncated", "too-small", "too-large", "aspect", "animated"; "fine" for 0. */
const char *picture_verdict_name(int verdict);
/* "bilinear", "bicubic" */
const char *picture_resample_name(PictureResample resample);
