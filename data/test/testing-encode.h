/* SPDX-License-Identifier: Apache-2.0 */
/* testing-encode.h - for tests: converts values to the bytes of an MDS column. Production code only decodes them.
 *
 * Units: bytes. Threads: any.
 * Ownership: the caller's buffers.
 * Errors:    -EINVAL the value contradicts the column; -ERANGE a number that does not fit.
 */
#pragma once

#include "base/number/half.h"
#include "data/mds/mds.h"

#include <string.h>

enum { ARRAY_HEADER_MAX = 2 + 8 * MDS_DIMS_MAX };

/* Writes the bytes in front of an array's values (0 to ARRAY_HEADER_MAX); *ret_n is their number. */
static inline int encode_array(const MdsColumn *column, const MdsArray *array,
                               uint8_t ret[ARRAY_HEADER_MAX], size_t *ret_n)
{
    assert(column->kind == MDS_NDARRAY);
    uint64_t n_bytes = mds_number_size(array->number), largest = 0;
    bool good = array->n_dims >= 1 && array->n_dims <= MDS_DIMS_MAX && n_bytes > 0;
    for (int i = 0; good && i < array->n_dims; i++) {
        good = array->dims[i] >= 1 && !__builtin_mul_overflow(n_bytes, array->dims[i], &n_bytes);
        largest = MAX(largest, array->dims[i]);
    }
    if (!good || n_bytes != array->n_bytes)
        return -EINVAL;
    if ((column->number != MDS_NUMBER_NONE && column->number != array->number) ||
        (column->n_dims > 0 &&
         (column->n_dims != array->n_dims ||
          memcmp(column->dims, array->dims, (size_t)array->n_dims * sizeof(array->dims[0])) != 0)))
        return -EINVAL;

    size_t n = 0;
    if (column->number == MDS_NUMBER_NONE)
        ret[n++] = (uint8_t)array->number;
    if (column->n_dims == 0) {
        unsigned code = largest <= UINT8_MAX    ? 0
                        : largest <= UINT16_MAX ? 1
                        : largest <= UINT32_MAX ? 2
                                                : 3;
        ret[n++] = (uint8_t)((unsigned)array->n_dims << 2 | code);
        for (int i = 0; i < array->n_dims; i++, n += (size_t)1 << code)
            memcpy(ret + n, &array->dims[i], (size_t)1 << code);
    }
    *ret_n = n;
    return 0;
}

/* Encodes an integer scalar into the first column->size bytes of ret. */
static inline int encode_integer(const MdsColumn *column, int64_t value, uint8_t ret[8])
{
    uint8_t bytes[8];
    memcpy(bytes, &value, sizeof(bytes));
    int64_t back = 0;
    if (column->kind == MDS_SCALAR &&
        mds_integer_decode(column, (MdsField){bytes, column->size}, &back, NULL) == 0 &&
        back == value) {
        memcpy(ret, bytes, sizeof(bytes));
        return 0;
    }
    return -ERANGE;
}

/* Encodes a float16, float32 or float64 scalar. */
static inline int encode_double(const MdsColumn *column, double value, uint8_t ret[8])
{
    float single = (float)value;
    uint16_t half = half_from_float(single);
    if (column->kind == MDS_SCALAR && column->number == MDS_FLOAT16)
        memcpy(ret, &half, sizeof(half));
    else if (column->kind == MDS_SCALAR && column->number == MDS_FLOAT32)
        memcpy(ret, &single, sizeof(single));
    else if (column->kind == MDS_SCALAR && column->number == MDS_FLOAT64)
        memcpy(ret, &value, sizeof(value));
    else
        return -EINVAL;
    return 0;
}
