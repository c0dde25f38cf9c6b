/* SPDX-License-Identifier: Apache-2.0 */
/* heap.h - a priority queue of nodes that are members of their owners' structs; any node can be removed.
 *
 * Units: none. Errors: none. Threads: one.
 * Ownership: heap_close() frees the array; the nodes are their owners'.
 */
#pragma once

#include "base/macro.h"

typedef struct HeapNode {
    size_t place; /* 1 + the node's index in the heap; 0: the node is in no heap */
} HeapNode;

typedef struct HeapEntry {
    uint64_t key;
    HeapNode *node;
} HeapEntry;

typedef struct Heap {
    bool (*before)(const HeapNode *a,
                   const HeapNode *b); /* a strict order of nodes that have equal keys */
    HeapEntry *entries;
    size_t n, size;
} Heap;

static inline HeapNode *heap_first(const Heap *heap)
{
    return heap->n ? heap->entries[0].node : NULL;
}
/* Puts a node into the order given by its key, and by before() if keys are equal. The node is new,
 * or is already in the heap and has changed. Lower keys come first. */
void heap_put(Heap *heap, HeapNode *node, uint64_t key);
void heap_remove(Heap *heap, HeapNode *node);
void heap_close(Heap *heap);
