/* SPDX-License-Identifier: Apache-2.0 */
/* canned-pictures.h - small pictures whose pixels tell decoders apart.
 *
 * Which bytes a lossy file becomes is up to the version of its library: libjpeg-turbo has changed how it upsamples more
 * than once. Two machines may work on one dataset if they decode these pictures to the same pixels, whatever they have
 * installed. There is one of each kind of JPEG, PNG and WebP; they never change.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    those of picture_decode() but its verdicts, which are a part of the hash.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"

/* Hash of all of them decoded and resized in both ways. */
int canned_pictures_hash(Hash *ret, Error *err);

/* For tests. */
size_t canned_picture(size_t number, const char **ret_name, const void **ret);
