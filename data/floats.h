/* SPDX-License-Identifier: Apache-2.0 */
/* floats.h - the numbers of an array as floats, which must be finite.
 *
 * Ownership: none.
 * Units:     n: numbers.
 * Errors:    -EBADMSG: one is not finite. -EINVAL: of a type that is not supported.
 * Threads:   any.
 */
#pragma once

#include "data/mds/npy.h"

/* Errors begin with "<what> <name>". */
int dataset_expand(const char *what, const char *name, MdsNumber number, const void *values,
                   size_t n, float *ret, Error *err);
