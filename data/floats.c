/* SPDX-License-Identifier: Apache-2.0 */
/* floats.c - see floats.h. */
#include "data/floats.h"

#include "base/number/half.h"

#include <errno.h>
#include <string.h>

/* Infinities and NaNs are the floats whose exponent is all ones. Four floats are tested together. */
static bool all_finite(const float *values, size_t n)
{
    typedef uint32_t Lanes __attribute__((vector_size(16)));
    const uint32_t exponent = 0x7f800000;
    Lanes bad = {0};
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        Lanes bits;
        memcpy(&bits, values + i, sizeof(bits));
        bad |= (Lanes)((bits & exponent) == exponent);
    }
    uint32_t any = 0;
    for (int k = 0; k < 4; k++)
        any |= bad[k];
    for (; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof(bits));
        any |= (bits & exponent) == exponent;
    }
    return any == 0;
}

int dataset_expand(const char *what, const char *name, MdsNumber number, const void *values,
                   size_t n, float *ret, Error *err)
{
    bool finite;
    if (number == MDS_FLOAT16) {
        finite = half_expand(values, n, ret);
    } else if (number == MDS_FLOAT32) {
        memcpy(ret, values, n * sizeof(*ret));
        finite = all_finite(ret, n);
    } else if (number == MDS_FLOAT64) {
        for (size_t i = 0; i < n; i++) {
            double value;
            memcpy(&value, (const uint8_t *)values + i * sizeof(value), sizeof(value));
            ret[i] = (float)value;
        }
        finite = all_finite(ret, n);
    } else {
        return error_set(err, -EINVAL, "%s %s: values of type %s are not supported", what, name,
                         mds_number_name(number));
    }
    return finite ? 0
                  : error_set(err, -EBADMSG, "%s %s holds a value that is not finite", what, name);
}
