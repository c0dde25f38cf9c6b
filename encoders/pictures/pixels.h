/* SPDX-License-Identifier: Apache-2.0 */
/* pixels.h - the decoders of the kinds of picture files, and the functions that they share.
 *
 * Ownership: a decoder gives the caller pixels->rgb, to free().
 * Units:     pixels, bytes.
 * Errors:    as picture-decode.h; a decoder that fails does not change *ret.
 */
#pragma once

#include "encoders/pictures/picture-decode.h"

/* A decoded picture in the file's orientation. */
typedef struct Pixels {
    int width, height;
    int orientation; /* orientation of EXIF, 1 to 8 */
    uint8_t *rgb;    /* width * height * 3 bytes */
} Pixels;

/* Decode a file of one format. The caller has checked the first bytes that mark the format: 8 for PNG, 3 for JPEG, 12
 * for WebP. */
int pixels_from_png(const PictureRecipe *recipe, const uint8_t *data, size_t n_bytes, Pixels *ret,
                    Error *err);
int pixels_from_jpeg(const PictureRecipe *recipe, const uint8_t *data, size_t n_bytes, Pixels *ret,
                     Error *err);
int pixels_from_webp(const PictureRecipe *recipe, const uint8_t *data, size_t n_bytes, Pixels *ret,
                     Error *err);

/* Returns 0 if the recipe accepts a picture of this size, else a verdict. A decoder calls it before it decodes the
 * pixels. */
int pixels_admit(const PictureRecipe *recipe, int64_t width, int64_t height, Error *err);

/* Sets err to the text and returns the verdict. */
int picture_reject(Error *err, PictureVerdict verdict, const char *format, ...) _printf_(3, 4);

/* Composes n pixels on white, RGBA to RGB in the same place, as Pillow's alpha_composite() does. */
void pixels_on_white(uint8_t *pixels, size_t n);

/* Turns and mirrors the stored pixels to the visible picture; orientation becomes 1. */
int pixels_orient(Pixels *pixels, Error *err);

/* Returns the orientation in the first directory of EXIF's TIFF block; 1 if the block is broken or has no orientation
 * of 1 to 8. */
int exif_orientation(const uint8_t *tiff, size_t n_bytes);
