/* SPDX-License-Identifier: Apache-2.0 */
/* heap.c - see heap.h. */
#include "tests/sim/seams/heap.h"
#include "base/memory.h"

#include <stdlib.h>

static void put(Heap *heap, size_t at, HeapEntry entry)
{
    heap->entries[at] = entry;
    entry.node->place = at + 1;
}

static bool before(const Heap *heap, HeapEntry a, HeapEntry b)
{
    return a.key != b.key ? a.key < b.key : heap->before(a.node, b.node);
}

static size_t rise(Heap *heap, size_t at)
{
    const HeapEntry entry = heap->entries[at];
    for (; at > 0 && before(heap, entry, heap->entries[(at - 1) / 2]); at = (at - 1) / 2)
        put(heap, at, heap->entries[(at - 1) / 2]);
    put(heap, at, entry);
    return at;
}

static void sink(Heap *heap, size_t at)
{
    const HeapEntry entry = heap->entries[at];
    for (size_t child = 2 * at + 1; child < heap->n; child = 2 * at + 1) {
        if (child + 1 < heap->n && before(heap, heap->entries[child + 1], heap->entries[child]))
            child++;
        if (!before(heap, heap->entries[child], entry))
            break;
        put(heap, at, heap->entries[child]);
        at = child;
    }
    put(heap, at, entry);
}

static size_t place_of(const Heap *heap, const HeapNode *node)
{
    assert(node->place > 0 && node->place <= heap->n &&
           heap->entries[node->place - 1].node == node);
    return node->place - 1;
}

void heap_put(Heap *heap, HeapNode *node, uint64_t key)
{
    if (node->place == 0) {
        heap->entries = memory_grow(heap->entries, heap->n, &heap->size, sizeof(HeapEntry));
        put(heap, heap->n++, (HeapEntry){key, node});
        (void)rise(heap, heap->n - 1);
        return;
    }
    const size_t at = place_of(heap, node);
    heap->entries[at].key = key;
    if (rise(heap, at) == at)
        sink(heap, at);
}

void heap_remove(Heap *heap, HeapNode *node)
{
    const size_t at = place_of(heap, node);
    node->place = 0;
    const HeapEntry last = heap->entries[--heap->n];
    if (last.node == node)
        return;
    put(heap, at, last);
    if (rise(heap, at) == at)
        sink(heap, at);
}

void heap_close(Heap *heap)
{
    assert(heap->n == 0);
    free(heap->entries);
    *heap = (Heap){.before = heap->before};
}
