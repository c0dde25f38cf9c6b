/* SPDX-License-Identifier: Apache-2.0 */
/* picture-decode.h - converts a picture file's bytes to side x side RGB bytes, as Pillow does.
 *
 * The bytes determine the kind of file; a file's name is not used. Then, in this order: the orientation of EXIF is
 * applied; grey, palettes, 16 bit (the high byte) and CMYK become 8-bit RGB; a picture with alpha is composed on white;
 * the shorter side is scaled to `side`, the longer side to floor(side * longer / shorter), by Pillow's resize; the
 * square in the middle is cut out. docs/internals/pictures.md lists the differences from Pillow, and their reasons.
 *
 * A verdict depends only on the bytes and the recipe.
 *
 * Ownership: the caller's buffers.
 * Units:     pixels, bytes; rows from the top, pixels from the left, R G B.
 * Errors:    0; a PictureVerdict, with its text in err, whose code is then -EBADMSG; -ENOMEM; -EINVAL a recipe that is
 *            not valid.
 */
#pragma once

#include "base/error.h"

typedef enum PictureResample { PICTURE_BILINEAR, PICTURE_BICUBIC } PictureResample;

typedef enum PictureVerdict {
    PICTURE_EMPTY = 1, /* no bytes */
    PICTURE_DECODE,    /* not a picture of a supported kind, or a broken one */
    PICTURE_TRUNCATED, /* the bytes end before the picture is complete */
    PICTURE_TOO_SMALL, /* the shorter side is below min_side */
    PICTURE_TOO_LARGE, /* over max_pixels, PICTURE_FILE_BYTES_MAX, or 2^23 pixels in a PNG's row */
    PICTURE_ASPECT,    /* longer / shorter is above max_aspect */
    PICTURE_ANIMATED,
} PictureVerdict;

enum {
    PICTURE_N_VERDICTS = PICTURE_ANIMATED + 1, /* counts the verdicts, and 0 for success */
    PICTURE_FILE_BYTES_MAX = 1 << 26,
    PICTURE_RECIPE_PIXELS_MAX = 1 << 26, /* the largest max_pixels */
    PICTURE_RECIPE_SIDE_MAX = 4096,      /* the largest side */
};

typedef struct PictureRecipe {
    int side;
    PictureResample resample;
    int64_t max_pixels;
    double max_aspect; /* 0: any */
    int min_side;      /* 0: any; pictures smaller than `side` are scaled up */
} PictureRecipe;

/* Side 256, bilinear, at most 2^25 pixels, any aspect, any smallest side. */
extern const PictureRecipe picture_recipe_default;

/* Returns -EINVAL, with the field and its value in the text, if the recipe is not valid. */
int picture_recipe_check(const PictureRecipe *recipe, Error *err);

/* Decodes a file into ret_rgb[side * side * 3]; unless 0 is returned, its content is undefined. */
int picture_decode(const PictureRecipe *recipe, const void *data, size_t n_bytes, uint8_t *ret_rgb,
                   Error *err);

/* Returns "empty", "decode", "truncated", "too-small", "too-large", "aspect" or "animated"; "fine" for 0. */
const char *picture_verdict_name(int verdict);
/* For tests: returns "bilinear" or "bicubic". */
const char *picture_resample_name(PictureResample resample);
