/* SPDX-License-Identifier: Apache-2.0 */
/* checksum.h - the hash algorithms that an index.json may name.
 *
 * xxHash computes xxh32, xxh64, xxh3_64 and xxh128 (also spelt xxh3_128). OpenSSL computes md5, sha1, sha2, sha3 and
 * blake2, under the names that Python's hashlib gives them.
 *
 * Ownership: checksum_new() gives the caller a Checksum; checksum_free() accepts NULL.
 * Units:     bytes. Digests are in the order in which their hexadecimal form is printed.
 * Errors:    -ENOTSUP an unknown algorithm; -ENOMEM.
 * Threads:   a Checksum belongs to one thread.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

enum { CHECKSUM_BYTES_MAX = 64, CHECKSUM_NAME_MAX = 16 };

typedef struct Checksum Checksum;

/* The digest's size in bytes, or -ENOTSUP. */
int checksum_size(const char *algorithm);

int checksum_new(const char *algorithm, Checksum **ret, Error *err);
Checksum *checksum_free(Checksum *checksum);
DEFINE_CLEANUP(Checksum, checksum_free)
int checksum_update(Checksum *checksum, const void *data, size_t n_bytes);
/* Fills ret[checksum_size()]; afterwards no data may be added. */
int checksum_finish(Checksum *checksum, uint8_t ret[CHECKSUM_BYTES_MAX]);

/* Computes the checksum of n_bytes in one call. */
int checksum_bytes(const char *algorithm, const void *data, size_t n_bytes,
                   uint8_t ret[CHECKSUM_BYTES_MAX], Error *err);

/* Reads a digest; -EINVAL unless text is exactly 2 * n_bytes lower-case hexadecimal digits. */
int checksum_parse(const char *text, size_t n_bytes, uint8_t *ret);
