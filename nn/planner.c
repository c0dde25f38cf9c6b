/* SPDX-License-Identifier: Apache-2.0 */
/* planner.c - see planner.h. */
#include "nn/planner.h"

#include "base/cleanup.h"

#include <string.h>

void planner_touch(PlannedBuffer *buffer, int time)
{
    buffer->first = MIN(buffer->first, time);
    buffer->last = MAX(buffer->last, time);
}

static bool is_used(const PlannedBuffer *b) { return b->bytes > 0 && b->first <= b->last; }

static bool meet(const PlannedBuffer *a, const PlannedBuffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Sorts the largest buffers first, and buffers of one size by their index, so that the plan is always the same. */
static int compare_bytes(const void *pa, const void *pb)
{
    const PlannedBuffer *const *a = pa, *const *b = pb;
    if ((*a)->bytes != (*b)->bytes)
        return (*a)->bytes > (*b)->bytes ? -1 : 1;
    return *a < *b ? -1 : *a > *b;
}

/* Returns the lowest offset at which b fits among the placed buffers, which are sorted by offset. */
static size_t lowest_gap(PlannedBuffer *const *placed, size_t n_placed, const PlannedBuffer *b)
{
    size_t offset = 0;
    for (size_t i = 0; i < n_placed; i++) {
        if (!meet(placed[i], b))
            continue;
        if (placed[i]->offset >= offset + b->bytes)
            break;
        size_t end = ROUND_UP(placed[i]->offset + placed[i]->bytes, (size_t)PLANNER_ALIGNMENT);
        offset = MAX(offset, end);
    }
    return offset;
}

int planner_place(PlannedBuffer *buffers, size_t n_buffers, size_t *ret_bytes)
{
    _cleanup_free_ PlannedBuffer **order = calloc(MAX(n_buffers, 1), sizeof(void *));
    _cleanup_free_ PlannedBuffer **placed = calloc(MAX(n_buffers, 1), sizeof(void *));
    if (!order || !placed)
        return -ENOMEM;

    size_t n_order = 0, n_placed = 0, arena_bytes = 0;
    for (size_t i = 0; i < n_buffers; i++)
        if (is_used(&buffers[i]))
            order[n_order++] = &buffers[i];
    qsort(order, n_order, sizeof(void *), compare_bytes);

    for (size_t i = 0; i < n_order; i++) {
        PlannedBuffer *b = order[i];
        b->offset = lowest_gap(placed, n_placed, b);
        assert(b->offset % PLANNER_ALIGNMENT == 0 && b->first <= b->last);
        arena_bytes = MAX(arena_bytes, ROUND_UP(b->offset + b->bytes, (size_t)PLANNER_ALIGNMENT));

        size_t at = n_placed;
        while (at > 0 && placed[at - 1]->offset > b->offset)
            at--;
        memmove(&placed[at + 1], &placed[at], (n_placed - at) * sizeof(void *));
        placed[at] = b;
        n_placed++;
    }
    *ret_bytes = arena_bytes;
    return 0;
}
