/* SPDX-License-Identifier: Apache-2.0 */
/* npy.h - NumPy's .npy files: one array with its type and shape.
 *
 * Ownership: npy_parse() borrows the bytes, and the array's values point into them; npy_format() gives the caller a
 *            buffer to free.
 * Units:     bytes; dims in elements, C order.
 * Errors:    -EINVAL naming the source and the fault in its header; big-endian, Fortran-ordered and structured arrays
 *            are also refused with -EINVAL.
 * Threads:   any.
 * Source:    NumPy NEP 1, format versions 1.0 to 3.0; files written here are 1.0, byte for byte the same as those of
 *            numpy.save.
 */
#pragma once

#include "base/error.h"
#include "data/mds/mds.h"

int npy_parse(const char *source, const void *data, size_t n_bytes, MdsArray *ret, Error *err);
int npy_format(const MdsArray *array, char **ret, size_t *ret_bytes);
