/* rendezvous_wire.h - what goes over the wire between rendezvous.c and rendezvous_client.c.
 *
 * One request a connection: a header of four little-endian words, the key, and for SET the value.
 * The answer is two words, status (0 or a positive errno) and the number of bytes of the value,
 * which follows. GET answers when the key is there, or with ETIMEDOUT. A key is set once.
 *
 * Ownership: none.
 * Units:     bytes, milliseconds.
 * Errors:    EINVAL malformed, EEXIST the key is set to something else, ENOSPC a limit is reached,
 *            ETIMEDOUT nobody set the key.
 * Threads:   any.
 */
#pragma once

#include "base/macro.h"

#define RENDEZVOUS_MAGIC UINT32_C(0x31767264) /* "drv1" */

enum { RENDEZVOUS_SET = 1, RENDEZVOUS_GET = 2 };

enum {
    RENDEZVOUS_KEY_MAX = 256,
    RENDEZVOUS_VALUE_MAX = 64 << 10,
    RENDEZVOUS_WAIT_MSEC_MAX = 600 * 1000,
};

typedef struct RendezvousRequest {
    uint32_t magic;
    uint32_t operation;
    uint32_t key_bytes;
    uint32_t argument; /* SET: bytes of the value; GET: milliseconds to wait */
} RendezvousRequest;

typedef struct RendezvousAnswer {
    uint32_t status;
    uint32_t value_bytes;
} RendezvousAnswer;

static_assert(sizeof(RendezvousRequest) == 16 && sizeof(RendezvousAnswer) == 8,
              "the wire has no padding");
