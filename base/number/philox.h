/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h - Philox4x32-10, the counter-based generator of all random numbers.
 *
 * Source:    Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11.
 * Units: 32-bit words. Errors: none.
 * Ownership: none. The generator has no state: a number is a function of (key, counter).
 */
#pragma once

#include "base/macro.h"

typedef struct Philox {
    uint32_t word[4];
} Philox;

/* Returns the 128-bit block of a 64-bit key and a 128-bit counter, given as (high, low). */
_device_ static inline Philox philox4x32(uint64_t key, uint64_t counter_high, uint64_t counter_low)
{
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0;
        uint64_t p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
    return (Philox){{c0, c1, c2, c3}};
}

/* Turns a word into a number in [0, 1) with 24 bits. */
_device_ static inline float philox_uniform(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }
