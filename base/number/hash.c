/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c - see hash.h. Hashes come from the xxHash library; CRC-32C uses the SSE4.2 instruction if the CPU has it. */
#include "base/number/hash.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

struct Hasher {
    XXH3_state_t *state;
};

static Hash hash_of(XXH128_hash_t h) { return (Hash){.high = h.high64, .low = h.low64}; }

Hash hash_bytes(const void *data, size_t n_bytes) { return hash_of(XXH3_128bits(data, n_bytes)); }

uint64_t hash64_bytes(const void *data, size_t n_bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, n_bytes, seed);
}

bool hash_equal(Hash a, Hash b) { return a.high == b.high && a.low == b.low; }

const char *hash_format(Hash hash, char text[HASH_TEXT_BYTES])
{
    (void)snprintf(text, HASH_TEXT_BYTES, "%016llx%016llx", (unsigned long long)hash.high,
                   (unsigned long long)hash.low);
    return text;
}

const char *hash_format_bytes(const uint8_t *bytes, size_t n_bytes, char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n_bytes; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * n_bytes] = '\0';
    return text;
}

int hash_draw(char text[HASH_TEXT_BYTES])
{
    Hash random;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return -EIO;
    (void)hash_format(random, text);
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -EINVAL;
}

int hash_parse(const char *text, Hash *ret)
{
    if (strlen(text) != HASH_TEXT_BYTES - 1)
        return -EINVAL;

    uint64_t half[2] = {0, 0};
    for (size_t i = 0; i < 32; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            return digit;
        half[i / 16] = half[i / 16] << 4 | (uint64_t)digit;
    }
    *ret = (Hash){.high = half[0], .low = half[1]};
    return 0;
}

int hasher_new(Hasher **ret)
{
    _cleanup_(hasher_freep) Hasher *hasher = calloc(1, sizeof(*hasher));
    if (!hasher)
        return -ENOMEM;
    hasher->state = XXH3_createState();
    if (!hasher->state)
        return -ENOMEM;
    (void)XXH3_128bits_reset(hasher->state); /* fails only if the state is NULL */
    *ret = TAKE_PTR(hasher);
    return 0;
}

Hasher *hasher_free(Hasher *hasher)
{
    if (hasher) {
        (void)XXH3_freeState(hasher->state);
        free(hasher);
    }
    return NULL;
}

void hasher_reset(Hasher *hasher) { (void)XXH3_128bits_reset(hasher->state); /* cannot fail */ }

void hasher_update(Hasher *hasher, const void *data, size_t n_bytes)
{
    (void)XXH3_128bits_update(hasher->state, data, n_bytes); /* fails only if the state is NULL */
}

Hash hasher_digest(const Hasher *hasher) { return hash_of(XXH3_128bits_digest(hasher->state)); }

static uint32_t crc32c_table[8][256];

static void crc32c_table_fill(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
        crc32c_table[0][i] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t i = 0; i < 256; i++)
            crc32c_table[k][i] =
                crc32c_table[k - 1][i] >> 8 ^ crc32c_table[0][crc32c_table[k - 1][i] & 255];
}

static uint32_t crc32c_portable(uint32_t crc, const uint8_t *p, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, crc32c_table_fill); /* fails only on a bad argument */

    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof(word));
        word ^= crc;
        crc = 0;
        for (int k = 0; k < 8; k++)
            crc ^= crc32c_table[7 - k][word >> (8 * k) & 255];
    }
    for (; n > 0; n--, p++)
        crc = crc >> 8 ^ crc32c_table[0][(crc ^ *p) & 255];
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *p,
                                                               size_t n)
{
    uint64_t wide = crc;
    for (; n >= 8; n -= 8, p += 8) {
        unsigned long long word;
        memcpy(&word, p, sizeof(word));
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; n > 0; n--, p++)
        crc = __builtin_ia32_crc32qi(crc, *p);
    return crc;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t n_bytes)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc32c_sse42(~crc, data, n_bytes);
#endif
    return ~crc32c_portable(~crc, data, n_bytes);
}
