/* SPDX-License-Identifier: Apache-2.0 */
/* proof.c - see proof.h. */

#include "trainer/comm/proof.h"

#include <endian.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/random.h>

int proof_nonce(uint8_t ret[static NONCE_BYTES])
{
    return getrandom(ret, NONCE_BYTES, 0) == NONCE_BYTES ? 0 : -EIO;
}

void proof_digest(const void *data, size_t n_bytes, uint8_t ret[static PROOF_DIGEST_BYTES])
{
    const unsigned char *done = SHA256(data, n_bytes, ret);
    assert(done); /* SHA256() needs no memory, so it cannot fail */
}

void proof_make(const CommKey *key, const char *purpose, const void *said, size_t n_bytes,
                uint8_t ret[static PROOF_BYTES])
{
    struct {
        char purpose[16];
        uint64_t generation;
        uint8_t digest[PROOF_DIGEST_BYTES];
    } text = {.generation = htole64((uint64_t)key->generation)};
    unsigned n = 0;
    memset(ret, 0, PROOF_BYTES);
    if (!key->secret)
        return;
    assert(strlen(purpose) < sizeof(text.purpose));
    memcpy(text.purpose, purpose, strlen(purpose));
    proof_digest(said, n_bytes, text.digest);
    const unsigned char *done = HMAC(EVP_sha256(), key->secret, COMM_SECRET_BYTES,
                                     (const unsigned char *)&text, sizeof(text), ret, &n);
    /* HMAC() fails only if memory has run out; a proof of zeros would look like a proof without a
     * secret */
    if (!done || n != PROOF_BYTES)
        abort();
}

bool proof_good(const CommKey *key, const char *purpose, const void *said, size_t n_bytes,
                const uint8_t proof[static PROOF_BYTES])
{
    uint8_t wanted[PROOF_BYTES];
    proof_make(key, purpose, said, n_bytes, wanted);
    return CRYPTO_memcmp(wanted, proof, PROOF_BYTES) == 0;
}
