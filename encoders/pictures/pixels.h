/* SPDX-License-Identifier: Apache-2.0 */
/* pixels.h - what the decoders of the single kinds of files give, and what they share.
 *
 * Ownership: a decoder gives the caller pixels->rgb, to free().
 * Units:     pixels, bytes.
 * Errors:    as picture-decode.h; a decoder that fails leaves *ret alone.
 * Threads:   any.
 */
#pragma once

#include "encoders/pictures/picture-decode.h"

/* A decoded picture as it lies in the file. */
typedef struct Pixels {
    int width, height;
    int orientation; /* EXIF's, 1 to 8 */
    uint8_t *rgb;    /* width * height * 3 */
} Pixels;

/* The first bytes say which of them reads a file; WebP's are the first 12. */
int pixels_from_png(const PictureRecipe *recipe, const uint8_t *data, size_t n_bytes, Pixels *ret,
                    Error *err);
int pixels_from_jpeg(const PictureRecipe *recipe, const uint8_t *data, size_t n_bytes, Pixels *ret,
                     Error *err);
int pixels_from_webp(const PictureRecipe *recipe, const uint8_t *data, size_t n_bytes, Pixels *ret,
                     Error *err);

/* Returns 0 if the recipe takes a picture of this size. A decoder asks as soon as it knows, before it decodes. */
int pixels_admit(const PictureRecipe *recipe, int64_t width, int64_t height, Error *err);

/* Sets err to the text, returns the verdict. */
int picture_reject(Error *err, PictureVerdict verdict, const char *format, ...) _printf_(3, 4);

/* Composes n pixels on white, RGBA to RGB in the same place, as Pillow's alpha_composite() does. */
void pixels_on_white(uint8_t *pixels, size_t n);

/* Turns and mirrors what lies in the file to what is to be seen; orientation becomes 1. */
int pixels_orient(Pixels *pixels, Error *err);

/* Returns the orientation that the TIFF block of EXIF names in its first directory; 1 if it names none of 1 to 8, or
 * is broken. */
int exif_orientation(const uint8_t *tiff, size_t n_bytes);
