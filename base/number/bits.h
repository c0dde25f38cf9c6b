/* SPDX-License-Identifier: Apache-2.0 */
/* bits.h - the bits of a float or double as an integer, and back.
 *
 * Ownership: none. Units: IEEE 754 bits. Errors: none.
 */
#pragma once

#include "base/macro.h"

#include <string.h>

_device_ static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

_device_ static inline float float_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

_device_ static inline uint64_t double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

_device_ static inline double double_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
