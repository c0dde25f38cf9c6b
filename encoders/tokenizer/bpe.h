/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.h - byte-pair encoding: a table of merges, and its use on one word (Sennrich et al., 2016).
 *
 * A word begins as its bytes, the last one marked as the word's end. The adjacent pair of the lowest rank is merged, at
 * all of its places from left to right, until no pair is in the table. Since a merge only joins tokens of earlier
 * merges, this is the order of a heap of (rank, place), in n log n.
 *
 * Ids, in this order: the 256 bytes in the order of OpenAI's bytes_to_unicode(), the same 256 bytes at the end of a
 * word, the merges, begin, end.
 *
 * Ownership: bpe_new() gives the caller a Bpe and copies what it needs; bpe_free() accepts NULL. A BpeScratch begins as
 *            zeros and ends with bpe_scratch_free().
 * Units:     ids; bytes of UTF-8.
 * Errors:    -EINVAL with "<source>:<line>: ..." ; -ENOMEM.
 * Threads:   any, after bpe_new(); a BpeScratch belongs to one thread.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"

enum {
    BPE_BYTES = 256,
    BPE_MERGES_FIRST = 2 * BPE_BYTES,
    BPE_VOCABULARY_MIN = BPE_MERGES_FIRST + 2,
    BPE_VOCABULARY_MAX = 65536,
    BPE_WORD_BYTES_MAX = 65536, /* a longer word is cut to this length */
};

typedef struct Bpe Bpe;

typedef struct BpeScratch {
    struct BpeNode *nodes;
    uint64_t *heap;
    size_t room; /* length in bytes of the longest word that fits */
} BpeScratch;

/* Reads `vocabulary` - BPE_VOCABULARY_MIN merges, one per line, below a line with "#version". More lines are refused,
 * unless the first line names OpenAI's bpe_simple_vocab_16e6.txt, which has more merges than are used. */
int bpe_new(const char *source, const char *text, size_t n_bytes, int vocabulary, Bpe **ret,
            Error *err);
Bpe *bpe_free(Bpe *bpe);
DEFINE_CLEANUP(Bpe, bpe_free)

int bpe_vocabulary(const Bpe *bpe);
/* Returns the hash of the merges, which does not depend on the form of their file. */
Hash bpe_hash(const Bpe *bpe);
/* Returns the id of a token as vocab.json writes it, for example "cat</w>"; -ENOENT. The tokens begin and end are
 * found under their names in diffusers' files. */
int bpe_find(const Bpe *bpe, const char *text, size_t n_bytes);

/* Writes at most `room` ids of the word, which has at least one byte; returns their number, or -ENOMEM. */
int bpe_word(const Bpe *bpe, BpeScratch *scratch, const uint8_t *word, size_t n_bytes, int32_t *ret,
             size_t room);
void bpe_scratch_free(BpeScratch *scratch);
