/* SPDX-License-Identifier: Apache-2.0 */
/* heap.c - see heap.h. */
#include "tests/sim/seams/heap.h"
#include "base/memory.h"

#include <stdlib.h>

static void put(Heap *heap, size_t at, HeapNode *node)
{
    heap->nodes[at] = node;
    node->place = at + 1;
}

static void rise(Heap *heap, size_t at)
{
    HeapNode *node = heap->nodes[at];
    for (; at > 0 && heap->before(node, heap->nodes[(at - 1) / 2]); at = (at - 1) / 2)
        put(heap, at, heap->nodes[(at - 1) / 2]);
    put(heap, at, node);
}

static void sink(Heap *heap, size_t at)
{
    HeapNode *node = heap->nodes[at];
    for (size_t child = 2 * at + 1; child < heap->n; child = 2 * at + 1) {
        if (child + 1 < heap->n && heap->before(heap->nodes[child + 1], heap->nodes[child]))
            child++;
        if (!heap->before(heap->nodes[child], node))
            break;
        put(heap, at, heap->nodes[child]);
        at = child;
    }
    put(heap, at, node);
}

void heap_insert(Heap *heap, HeapNode *node)
{
    assert(node->place == 0);
    heap->nodes = memory_grow(heap->nodes, heap->n, &heap->size, sizeof(HeapNode *));
    put(heap, heap->n++, node);
    rise(heap, heap->n - 1);
}

void heap_remove(Heap *heap, HeapNode *node)
{
    assert(node->place > 0 && node->place <= heap->n && heap->nodes[node->place - 1] == node);
    size_t at = node->place - 1;
    node->place = 0;
    HeapNode *last = heap->nodes[--heap->n];
    if (last == node)
        return;
    put(heap, at, last);
    rise(heap, at);
    sink(heap, last->place - 1);
}

void heap_close(Heap *heap)
{
    assert(heap->n == 0);
    free(heap->nodes);
    *heap = (Heap){.before = heap->before};
}
