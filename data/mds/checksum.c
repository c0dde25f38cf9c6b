/* SPDX-License-Identifier: Apache-2.0 */
/* checksum.c - see checksum.h. */
#include "data/mds/checksum.h"

#include <openssl/evp.h>
#include <string.h>
#include <xxhash.h>

typedef enum ChecksumFamily {
    FAMILY_XXH32,
    FAMILY_XXH64,
    FAMILY_XXH3_64,
    FAMILY_XXH128,
    FAMILY_EVP
} ChecksumFamily;

struct Checksum {
    ChecksumFamily family;
    union {
        XXH32_state_t *xxh32;
        XXH64_state_t *xxh64;
        XXH3_state_t *xxh3;
        EVP_MD_CTX *evp;
    };
};

static const struct {
    const char *name;
    ChecksumFamily family;
    int size;
    const char *evp_name;
} algorithms[] = {
    {"xxh32", FAMILY_XXH32, 4, NULL},          {"xxh64", FAMILY_XXH64, 8, NULL},
    {"xxh3_64", FAMILY_XXH3_64, 8, NULL},      {"xxh128", FAMILY_XXH128, 16, NULL},
    {"xxh3_128", FAMILY_XXH128, 16, NULL},     {"md5", FAMILY_EVP, 16, "MD5"},
    {"sha1", FAMILY_EVP, 20, "SHA1"},          {"sha224", FAMILY_EVP, 28, "SHA224"},
    {"sha256", FAMILY_EVP, 32, "SHA256"},      {"sha384", FAMILY_EVP, 48, "SHA384"},
    {"sha512", FAMILY_EVP, 64, "SHA512"},      {"sha3_224", FAMILY_EVP, 28, "SHA3-224"},
    {"sha3_256", FAMILY_EVP, 32, "SHA3-256"},  {"sha3_384", FAMILY_EVP, 48, "SHA3-384"},
    {"sha3_512", FAMILY_EVP, 64, "SHA3-512"},  {"blake2b", FAMILY_EVP, 64, "BLAKE2b512"},
    {"blake2s", FAMILY_EVP, 32, "BLAKE2s256"},
};

static int find(const char *name)
{
    for (size_t i = 0; i < ELEMENTSOF(algorithms); i++)
        if (strcmp(algorithms[i].name, name) == 0)
            return (int)i;
    return -ENOTSUP;
}

int checksum_size(const char *algorithm)
{
    int i = find(algorithm);
    return i < 0 ? i : algorithms[i].size;
}

static bool start(Checksum *c, const char *evp_name)
{
    switch (c->family) {
    case FAMILY_XXH32:
        c->xxh32 = XXH32_createState();
        return c->xxh32 && XXH32_reset(c->xxh32, 0) == XXH_OK;
    case FAMILY_XXH64:
        c->xxh64 = XXH64_createState();
        return c->xxh64 && XXH64_reset(c->xxh64, 0) == XXH_OK;
    case FAMILY_XXH3_64:
        c->xxh3 = XXH3_createState();
        return c->xxh3 && XXH3_64bits_reset(c->xxh3) == XXH_OK;
    case FAMILY_XXH128:
        c->xxh3 = XXH3_createState();
        return c->xxh3 && XXH3_128bits_reset(c->xxh3) == XXH_OK;
    case FAMILY_EVP:
        c->evp = EVP_MD_CTX_new();
        const EVP_MD *md = EVP_get_digestbyname(evp_name);
        return c->evp && md && EVP_DigestInit_ex(c->evp, md, NULL) == 1;
    }
    return false;
}

int checksum_new(const char *algorithm, Checksum **ret, Error *err)
{
    int i = find(algorithm);
    if (i < 0)
        return error_set(err, i, "hash algorithm \"%.40s\" is not known", algorithm);

    _cleanup_(checksum_freep) Checksum *c = calloc(1, sizeof(*c));
    if (!c)
        return error_set(err, -ENOMEM, "out of memory");
    c->family = algorithms[i].family;
    if (!start(c, algorithms[i].evp_name))
        return error_set(err, -EINVAL, "hash algorithm \"%.40s\" is not available here", algorithm);
    *ret = TAKE_PTR(c);
    return 0;
}

Checksum *checksum_free(Checksum *c)
{
    if (!c)
        return NULL;
    /* The functions that free a state accept NULL. */
    if (c->family == FAMILY_XXH32)
        (void)XXH32_freeState(c->xxh32);
    else if (c->family == FAMILY_XXH64)
        (void)XXH64_freeState(c->xxh64);
    else if (c->family == FAMILY_EVP)
        EVP_MD_CTX_free(c->evp);
    else
        (void)XXH3_freeState(c->xxh3);
    free(c);
    return NULL;
}

int checksum_update(Checksum *c, const void *data, size_t n)
{
    bool good = false;
    switch (c->family) {
    case FAMILY_XXH32:
        good = XXH32_update(c->xxh32, data, n) == XXH_OK;
        break;
    case FAMILY_XXH64:
        good = XXH64_update(c->xxh64, data, n) == XXH_OK;
        break;
    case FAMILY_XXH3_64:
        good = XXH3_64bits_update(c->xxh3, data, n) == XXH_OK;
        break;
    case FAMILY_XXH128:
        good = XXH3_128bits_update(c->xxh3, data, n) == XXH_OK;
        break;
    case FAMILY_EVP:
        good = EVP_DigestUpdate(c->evp, data, n) == 1;
        break;
    }
    return good ? 0 : -EINVAL;
}

static void put_big_endian(uint64_t value, size_t n_bytes, uint8_t *ret)
{
    for (size_t i = 0; i < n_bytes; i++)
        ret[i] = (uint8_t)(value >> 8 * (n_bytes - 1 - i));
}

int checksum_finish(Checksum *c, uint8_t ret[CHECKSUM_BYTES_MAX])
{
    switch (c->family) {
    case FAMILY_XXH32:
        put_big_endian(XXH32_digest(c->xxh32), 4, ret);
        return 0;
    case FAMILY_XXH64:
        put_big_endian(XXH64_digest(c->xxh64), 8, ret);
        return 0;
    case FAMILY_XXH3_64:
        put_big_endian(XXH3_64bits_digest(c->xxh3), 8, ret);
        return 0;
    case FAMILY_XXH128: {
        XXH128_hash_t h = XXH3_128bits_digest(c->xxh3);
        put_big_endian(h.high64, 8, ret);
        put_big_endian(h.low64, 8, ret + 8);
        return 0;
    }
    case FAMILY_EVP:
        return EVP_DigestFinal_ex(c->evp, ret, NULL) == 1 ? 0 : -EINVAL;
    }
    return -EINVAL;
}

int checksum_bytes(const char *algorithm, const void *data, size_t n_bytes,
                   uint8_t ret[CHECKSUM_BYTES_MAX], Error *err)
{
    _cleanup_(checksum_freep) Checksum *c = NULL;
    int r = checksum_new(algorithm, &c, err);
    if (r < 0)
        return r;
    r = checksum_update(c, data, n_bytes);
    if (r == 0)
        r = checksum_finish(c, ret);
    return r < 0 ? error_errno(err, r, "cannot compute %s", algorithm) : 0;
}

int checksum_parse(const char *text, size_t n_bytes, uint8_t *ret)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != 2 * n_bytes)
        return -EINVAL;
    for (size_t i = 0; i < n_bytes; i++) {
        const char *high = strchr(digits, text[2 * i]), *low = strchr(digits, text[2 * i + 1]);
        if (!high || !low)
            return -EINVAL;
        ret[i] = (uint8_t)((high - digits) << 4 | (low - digits));
    }
    return 0;
}
