/* SPDX-License-Identifier: Apache-2.0 */
/* bpe-internal.h - what a Bpe holds: bpe-read.c makes it, bpe.c uses it.
 *
 * Ownership: the Bpe owns its arrays.
 * Units:     ids; bytes of UTF-8.
 * Errors:    see bpe.h.
 * Threads:   any, once made.
 */
#pragma once

#include "encoders/tokenizer/bpe.h"

#include <string.h>

/* A token that a merge makes. */
typedef struct BpeToken {
    uint32_t at;        /* its first byte in Bpe.bytes */
    uint16_t n, n_left; /* bytes of it, and of the first of its pair */
    bool ends;          /* a word */
} BpeToken;

struct Bpe {
    int vocabulary, n_merges;
    uint8_t *bytes;
    BpeToken *tokens; /* by rank */
    uint32_t *sorted; /* ranks in the order of their bytes */
    uint32_t *begin;  /* [vocabulary + 1]: of a left id, its first place in right and made */
    uint16_t *right;  /* rising for each left id */
    uint16_t *made;
    uint16_t *words; /* a hash table of the ids of tokens that are whole words; 0: none */
    Hash hash;
};

enum { BPE_WORD_SLOTS = 1 << 17, BPE_WORD_PROBES = 16, BPE_TOKEN_BYTES_MAX = 1024 };

extern const uint8_t bpe_id_of_byte[BPE_BYTES];

/* Works as bpe_word(), without looking whether the word is one token. */
int bpe_word_by_merges(const Bpe *bpe, BpeScratch *scratch, const uint8_t *word, size_t n_bytes,
                       int32_t *ret, size_t room);
/* The id of these bytes at the end of a word or not; -ENOENT. */
int bpe_find_bytes(const Bpe *bpe, const uint8_t *bytes, size_t n, bool ends);

static inline size_t bpe_word_slot(const uint8_t *word, size_t n)
{
    return hash64_bytes(word, n, 0) % BPE_WORD_SLOTS;
}
