/* SPDX-License-Identifier: Apache-2.0 */
/* floats.h - converts an array's numbers to floats, which must be finite.
 *
 * Ownership: none. Units: n: numbers.
 * Errors:    -EBADMSG: a number is not finite. -EINVAL: the numbers' type is not supported.
 */
#pragma once

#include "data/mds/npy.h"

/* Converts n numbers. Error texts begin with "<what> <name>". */
int dataset_expand(const char *what, const char *name, MdsNumber number, const void *values,
                   size_t n, float *ret, Error *err);
