/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h - XXH3-128 for identity and integrity, CRC-32C for the checksums of S3.
 *
 * Folder:    defaults of the headers here: Threads: any.
 * Ownership: a Hash is a value. hasher_new() gives the caller a Hasher, which hashes bytes that arrive in parts.
 * Units:     bytes. The text form of a Hash is 32 lower-case hexadecimal digits, high half first.
 * Errors:    hash_parse(): -EINVAL.
 * Threads:   any; a Hasher belongs to one thread.
 */
#pragma once

#include "base/cleanup.h"
#include "base/macro.h"

enum { HASH_TEXT_BYTES = 33 };

typedef struct Hash {
    uint64_t high, low;
} Hash;

typedef struct Hasher Hasher;

Hash hash_bytes(const void *data, size_t n_bytes);
uint64_t hash64_bytes(const void *data, size_t n_bytes, uint64_t seed);
bool hash_equal(Hash a, Hash b);

/* Writes the text form into text and returns it. */
const char *hash_format(Hash hash, char text[HASH_TEXT_BYTES]);
int hash_parse(const char *text, Hash *ret);
/* Writes the bytes as lower-case hexadecimal digits and a NUL, 2 n_bytes + 1 characters, and returns text. */
const char *hash_format_bytes(const uint8_t *bytes, size_t n_bytes, char *text);
/* Writes the text form of 128 random bits, unique for each call; -EIO if the kernel gives no random bytes. */
int hash_draw(char text[HASH_TEXT_BYTES]);

int hasher_new(Hasher **ret);
Hasher *hasher_free(Hasher *hasher);
DEFINE_CLEANUP(Hasher, hasher_free)
/* Forgets the bytes so far and begins a new hash. */
void hasher_reset(Hasher *hasher);
void hasher_update(Hasher *hasher, const void *data, size_t n_bytes);
Hash hasher_digest(const Hasher *hasher);

/* Returns the CRC-32C (Castagnoli, RFC 3720); pass 0 to begin and the last result to continue. */
uint32_t crc32c(uint32_t crc, const void *data, size_t n_bytes);
