/* SPDX-License-Identifier: Apache-2.0 */
/* proof.h - makes and checks the proofs by which ranks show that they belong to one world: HMAC-SHA256 with the world's
 * secret.
 *
 * A proof covers a purpose, the generation and the bytes that were exchanged. Those bytes include a nonce of each side,
 * so a proof cannot be used twice. Without a secret, a proof is all zeros and proves nothing; a rank that has a secret
 * never accepts such a proof.
 *
 * Ownership: none. Units: bytes.
 * Errors:    -EIO: the kernel gives no random bytes.
 * Source:    RFC 2104; FIPS 198-1.
 */
#pragma once

#include "trainer/comm/comm.h"

enum { PROOF_BYTES = 32, NONCE_BYTES = 16, PROOF_DIGEST_BYTES = 32 };

int proof_nonce(uint8_t ret[static NONCE_BYTES]);
/* Makes a proof. purpose has at most 15 characters. */
void proof_make(const CommKey *key, const char *purpose, const void *said, size_t n_bytes,
                uint8_t ret[static PROOF_BYTES]);
/* Checks a proof. Takes the same time for every wrong proof. */
bool proof_good(const CommKey *key, const char *purpose, const void *said, size_t n_bytes,
                const uint8_t proof[static PROOF_BYTES]);
/* Computes the SHA-256 digest of the data. */
void proof_digest(const void *data, size_t n_bytes, uint8_t ret[static PROOF_DIGEST_BYTES]);
