/* SPDX-License-Identifier: Apache-2.0 */
/* heap.h - a priority queue of nodes that lie in their owners' structs and can be taken out from anywhere.
 *
 * Ownership: heap_close() frees the array; the nodes are their owners'.
 * Units:     none.
 * Errors:    none.
 * Threads:   one.
 */
#pragma once

#include "base/macro.h"

typedef struct HeapNode {
    size_t place; /* 1 + index; 0: in no heap */
} HeapNode;

typedef struct Heap {
    bool (*before)(const HeapNode *a, const HeapNode *b); /* a strict order */
    HeapNode **nodes;
    size_t n, size;
} Heap;

static inline HeapNode *heap_first(const Heap *heap) { return heap->n ? heap->nodes[0] : NULL; }
void heap_insert(Heap *heap, HeapNode *node);
void heap_remove(Heap *heap, HeapNode *node);
void heap_close(Heap *heap);
