/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.c - splits one word into tokens: a list of nodes, and a heap of the pairs that can be merged. */
#include "encoders/tokenizer/bpe-internal.h"

/* A symbol of the word. A node stays at the index of its first byte. */
typedef struct BpeNode {
    uint32_t id, before, after; /* before, after: indices of the neighbours */
    uint32_t made; /* id that this node and the next node merge to; NONE: they do not merge */
} BpeNode;

enum { HEAP_PUSHES = 3 /* per byte: one first pair, and at most two pairs after a merge */ };
#define NONE UINT32_MAX

int bpe_vocabulary(const Bpe *bpe) { return bpe->vocabulary; }
Hash bpe_hash(const Bpe *bpe) { return bpe->hash; }

void bpe_scratch_free(BpeScratch *scratch)
{
    free(scratch->nodes);
    free(scratch->heap);
    *scratch = (BpeScratch){0};
}

static int scratch_reserve(BpeScratch *scratch, size_t n)
{
    if (scratch->room >= n)
        return 0;
    size_t room = MAX(n, 2 * scratch->room);
    BpeNode *nodes = reallocarray(scratch->nodes, room, sizeof(*nodes));
    if (!nodes)
        return -ENOMEM;
    scratch->nodes = nodes;
    uint64_t *heap = reallocarray(scratch->heap, room, HEAP_PUSHES * sizeof(*heap));
    if (!heap)
        return -ENOMEM;
    scratch->heap = heap;
    scratch->room = room;
    return 0;
}

/* Returns the id that two ids merge to, or NONE. */
static uint32_t find_pair(const Bpe *bpe, uint32_t left, uint32_t right)
{
    uint32_t lo = bpe->begin[left], end = bpe->begin[left + 1], hi = end;
    while (lo < hi) {
        uint32_t middle = (lo + hi) / 2;
        if (bpe->right[middle] < right)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < end && bpe->right[lo] == right ? bpe->made[lo] : NONE;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t key)
{
    size_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = key;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t least = heap[0], key = heap[--*n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        child += child + 1 < *n && heap[child + 1] < heap[child];
        if (heap[child] >= key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = key;
    return least;
}

/* Finds the id that a node and the next node merge to, stores it in the node, and adds the merge to the heap. */
static void look_at(const Bpe *bpe, BpeScratch *scratch, size_t *n_heap, uint32_t at)
{
    BpeNode *node = &scratch->nodes[at];
    node->made =
        node->after == NONE ? NONE : find_pair(bpe, node->id, scratch->nodes[node->after].id);
    if (node->made != NONE)
        heap_push(scratch->heap, n_heap, (uint64_t)node->made << 32 | at);
}

int bpe_word_by_merges(const Bpe *bpe, BpeScratch *scratch, const uint8_t *word, size_t n,
                       int32_t *ret, size_t room)
{
    int r = scratch_reserve(scratch, n);
    if (r < 0)
        return r;
    BpeNode *nodes = scratch->nodes;
    size_t n_heap = 0, n_ids = 0;
    for (uint32_t i = 0; i < n; i++)
        nodes[i] =
            (BpeNode){.id = bpe_id_of_byte[word[i]], .before = i ? i - 1 : NONE, .after = i + 1};
    nodes[n - 1].id += BPE_BYTES;
    nodes[n - 1].after = NONE;
    for (uint32_t i = 0; i < n; i++)
        look_at(bpe, scratch, &n_heap, i);
    while (n_heap > 0) {
        uint64_t key = heap_pop(scratch->heap, &n_heap);
        uint32_t at = (uint32_t)key;
        BpeNode *node = &nodes[at];
        if (node->made != key >> 32) /* one of the two nodes has merged with another node */
            continue;
        BpeNode *gone = &nodes[node->after];
        node->id = node->made;
        node->after = gone->after;
        gone->made = NONE;
        if (node->after != NONE)
            nodes[node->after].before = at;
        look_at(bpe, scratch, &n_heap, at);
        if (node->before != NONE)
            look_at(bpe, scratch, &n_heap, node->before);
    }
    for (uint32_t at = 0; at != NONE && n_ids < room; at = nodes[at].after)
        ret[n_ids++] = (int32_t)nodes[at].id;
    return (int)n_ids;
}

int bpe_word(const Bpe *bpe, BpeScratch *scratch, const uint8_t *word, size_t n, int32_t *ret,
             size_t room)
{
    assert(n > 0 && room > 0);
    n = MIN(n, (size_t)BPE_WORD_BYTES_MAX);
    size_t slot = n < BPE_TOKEN_BYTES_MAX ? bpe_word_slot(word, n) : 0;
    for (size_t probe = 0; n < BPE_TOKEN_BYTES_MAX && probe < BPE_WORD_PROBES; probe++) {
        uint16_t id = bpe->words[(slot + probe) % BPE_WORD_SLOTS];
        if (!id)
            break;
        const BpeToken *token = &bpe->tokens[id - BPE_MERGES_FIRST];
        if (token->n == n && memcmp(bpe->bytes + token->at, word, n) == 0) {
            ret[0] = id;
            return 1;
        }
    }
    return bpe_word_by_merges(bpe, scratch, word, n, ret, room);
}
