/* SPDX-License-Identifier: Apache-2.0 */
/* bpe-internal.h - the inside of a Bpe, which bpe-read.c makes and bpe.c uses.
 *
 * Units: ids; bytes of UTF-8. Errors: see bpe.h. Threads: any, once made.
 * Ownership: the Bpe owns its arrays.
 */
#pragma once

#include "encoders/tokenizer/bpe.h"

#include <string.h>

/* A token that a merge makes. */
typedef struct BpeToken {
    uint32_t at;        /* index of the token's first byte in Bpe.bytes */
    uint16_t n, n_left; /* bytes of the token, and of the left token of its pair */
    bool ends;          /* the token ends a word */
} BpeToken;

struct Bpe {
    int vocabulary, n_merges;
    uint8_t *bytes;
    BpeToken *tokens; /* indexed by rank */
    uint32_t *sorted; /* ranks, in the order of their tokens' bytes */
    uint32_t *begin;  /* [vocabulary + 1]: index in `right` and `made` of a left id's first pair */
    uint16_t *right;  /* right ids of the pairs, rising for each left id */
    uint16_t *made;
    uint16_t *words; /* hash table of the ids of tokens that are whole words; 0: empty */
    Hash hash;
};

enum { BPE_WORD_SLOTS = 1 << 17, BPE_WORD_PROBES = 16, BPE_TOKEN_BYTES_MAX = 1024 };

extern const uint8_t bpe_id_of_byte[BPE_BYTES];

/* As bpe_word(), but does not first look for the whole word in the table of words. */
int bpe_word_by_merges(const Bpe *bpe, BpeScratch *scratch, const uint8_t *word, size_t n_bytes,
                       int32_t *ret, size_t room);
/* Returns the id of the token with these bytes; ends: the token ends a word. -ENOENT: there is no such token. */
int bpe_find_bytes(const Bpe *bpe, const uint8_t *bytes, size_t n, bool ends);

static inline size_t bpe_word_slot(const uint8_t *word, size_t n)
{
    return hash64_bytes(word, n, 0) % BPE_WORD_SLOTS;
}
