/* SPDX-License-Identifier: Apache-2.0 */
/* canned-pictures.h - small pictures whose decoded pixels differ between versions of the decoders.
 *
 * The pixels of a lossy file depend on the version of the library: libjpeg-turbo has changed how it upsamples more than
 * once. Two machines may work on one dataset if they decode these pictures to the same pixels, whatever versions they
 * have installed. There is a picture for each kind of JPEG, PNG and WebP; the pictures never change.
 *
 * Ownership: none. Units: none.
 * Errors:    as picture_decode(), except for its verdicts, which are part of the hash.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"

/* Computes the hash of all pictures, each decoded and resized with the bilinear and with the bicubic filter. */
int canned_pictures_hash(Hash *ret, Error *err);

/* For tests: returns the size of a picture, or 0 if there is no picture of this number. */
size_t canned_picture(size_t number, const char **ret_name, const void **ret);
