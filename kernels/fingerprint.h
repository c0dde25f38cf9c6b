/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.h - the term that one word of memory adds to a fingerprint, on every kind of device.
 *
 * A fingerprint is the sum of all words' terms modulo 2^64. A sum of integers does not depend on an order, so any
 * number of threads may add to it. A term is the finalizer of splitmix64, applied to the word and its place, so that an
 * exchange of two words changes the fingerprint.
 *
 * Ownership: none. Units: words of 4 bytes. Errors: none. Threads: any; pure.
 */
#pragma once

#include "base/number/bits.h"

_device_ static inline uint64_t mixed_word(uint64_t place, uint32_t word)
{
    uint64_t x = (place + 1) * 0x9e3779b97f4a7c15u ^ word;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Returns a word made of the 1 to 3 bytes behind the last whole word. */
_device_ static inline uint32_t partial_word(const char *bytes, size_t n)
{
    uint32_t word = 0;
    for (size_t i = 0; i < n; i++)
        word |= (uint32_t)(uint8_t)bytes[i] << (8 * i);
    return word;
}
