/* SPDX-License-Identifier: Apache-2.0 */
/* rendezvous-wire.h - the messages between rendezvous.c and rendezvous-client.c.
 *
 * A connection carries one request. The server greets with the connection's number and a nonce. The
 * request is a header, the key, and for SET the value; the answer is a header and for GET the value.
 * GET is answered when the key is set, or with ETIMEDOUT. A key is set once. Each side proves that it
 * belongs to the world (proof.h): the request's proof covers the greeting and the header, which contains
 * a digest of key and value; the answer's proof covers greeting, request, its own header and the value.
 * A request without a good proof gets no answer.
 *
 * Ownership: none.
 * Units:     bytes, milliseconds; words are little-endian.
 * Errors:    EEXIST: the key has another value; ENOSPC: a limit is reached; ETIMEDOUT: no rank set the
 *            key.
 */
#pragma once

#include "trainer/comm/proof.h"

#include <endian.h>

#define RENDEZVOUS_MAGIC UINT32_C(0x32767264) /* "drv2" */

enum { RENDEZVOUS_SET = 1, RENDEZVOUS_GET = 2 };

enum {
    RENDEZVOUS_KEY_MAX = 256,
    RENDEZVOUS_VALUE_MAX = 64 << 10,
    RENDEZVOUS_WAIT_MSEC_MAX = 600 * 1000,
    RENDEZVOUS_BODY_MAX = RENDEZVOUS_KEY_MAX + RENDEZVOUS_VALUE_MAX,
};

typedef struct RendezvousGreeting {
    uint32_t magic;
    uint32_t zero;
    uint64_t counter; /* number of the connection */
    uint8_t nonce[NONCE_BYTES];
} RendezvousGreeting;

typedef struct RendezvousRequest {
    uint32_t magic;
    uint32_t operation;
    uint32_t key_bytes;
    uint32_t argument; /* SET: bytes of the value; GET: milliseconds to wait */
    uint8_t nonce[NONCE_BYTES];
    uint8_t digest[PROOF_DIGEST_BYTES]; /* digest of key and value */
    uint8_t proof[PROOF_BYTES];
} RendezvousRequest;

typedef struct RendezvousAnswer {
    uint32_t status; /* 0 or a positive errno */
    uint32_t value_bytes;
    uint8_t proof[PROOF_BYTES];
} RendezvousAnswer;

static_assert(sizeof(RendezvousGreeting) == 32 && sizeof(RendezvousRequest) == 96 &&
                  sizeof(RendezvousAnswer) == 40,
              "the wire has no padding");

/* ---- the bytes that a proof covers ---- */

typedef struct RendezvousProvenRequest {
    RendezvousGreeting greeting;
    RendezvousRequest request; /* the request with a proof of zeros */
} RendezvousProvenRequest;

typedef struct RendezvousProvenAnswer {
    RendezvousProvenRequest asked;
    uint32_t status, value_bytes;
    uint8_t digest[PROOF_DIGEST_BYTES]; /* digest of the value */
} RendezvousProvenAnswer;

static inline RendezvousProvenRequest rendezvous_proven_request(const RendezvousGreeting *greeting,
                                                                const RendezvousRequest *request)
{
    RendezvousProvenRequest asked = {*greeting, *request};
    for (size_t i = 0; i < PROOF_BYTES; i++)
        asked.request.proof[i] = 0;
    return asked;
}

/* Returns the bytes that the answer's proof covers. answer is in the wire's byte order. */
static inline RendezvousProvenAnswer rendezvous_proven_answer(const RendezvousProvenRequest *asked,
                                                              const RendezvousAnswer *answer,
                                                              const void *value)
{
    RendezvousProvenAnswer told = {.asked = *asked,
                                   .status = answer->status,
                                   .value_bytes = answer->value_bytes};
    proof_digest(value, le32toh(answer->value_bytes), told.digest);
    return told;
}

/* Returns whether the words of a request are within their limits. */
static inline bool rendezvous_request_good(const RendezvousRequest *request)
{
    const uint32_t key_bytes = le32toh(request->key_bytes), n = le32toh(request->argument);
    if (le32toh(request->magic) != RENDEZVOUS_MAGIC || key_bytes == 0 ||
        key_bytes > RENDEZVOUS_KEY_MAX)
        return false;
    if (le32toh(request->operation) == RENDEZVOUS_SET)
        return n <= RENDEZVOUS_VALUE_MAX;
    return le32toh(request->operation) == RENDEZVOUS_GET && n <= RENDEZVOUS_WAIT_MSEC_MAX;
}

static inline size_t rendezvous_body_bytes(const RendezvousRequest *request)
{
    const bool set = le32toh(request->operation) == RENDEZVOUS_SET;
    return (size_t)le32toh(request->key_bytes) + (set ? le32toh(request->argument) : 0);
}
