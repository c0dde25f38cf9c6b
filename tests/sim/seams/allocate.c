/* SPDX-License-Identifier: Apache-2.0 */
/* allocate.c - malloc() for a program with one thread that plays many schedules: it replaces the C library's malloc().
 *
 * A block has the size of its class and is in a span. A span begins at a multiple of SPAN_BYTES and records the
 * class of its blocks. A freed block goes to the front of its class's list, and stays there until it is used again.
 * Nothing is returned to the kernel, and nothing is checked: builds with sanitizers use the sanitizer's allocator. */
#include "base/macro.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    /* the difference between neighbouring classes of small blocks, and the alignment of all blocks */
    STEP_BYTES = 16,
    /* the number of classes of small blocks; larger blocks have four classes for each doubling */
    N_STEPS = 64,
    N_CLASSES = N_STEPS + 4 * 40,
    SPAN_BYTES = 1 << 16,
    HEAD_BYTES = 64,        /* bytes of a span's header, before its first block */
    REGION_BYTES = 1 << 24, /* bytes that are requested from the kernel at a time */
};

typedef struct Block {
    struct Block *next;
} Block;

typedef struct Span {
    size_t class, block_bytes;
} Span;

static struct {
    Block *free;
    char *next, *end; /* the unused part of the span from which new blocks are taken */
} classes[N_CLASSES];

static char *region, *region_end;

static size_t class_of(size_t n_bytes)
{
    if (n_bytes <= STEP_BYTES * N_STEPS)
        return n_bytes ? (n_bytes - 1) / STEP_BYTES : 0;
    const int log2 = 63 - __builtin_clzll(n_bytes - 1); /* log2 is at least 10 */
    return N_STEPS + 4 * (size_t)(log2 - 10) + ((n_bytes - 1) >> (log2 - 2) & 3);
}

static size_t class_bytes(size_t class)
{
    if (class < N_STEPS)
        return (class + 1) * STEP_BYTES;
    const size_t quarter = (size_t)1 << ((class - N_STEPS) / 4 + 8);
    return (5 + (class - N_STEPS) % 4) * quarter;
}

static char *take_spans(size_t n_bytes)
{
    if ((size_t)(region_end - region) < n_bytes) {
        const size_t size = MAX(n_bytes, (size_t)REGION_BYTES) + SPAN_BYTES;
        char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return NULL;
        region = (char *)(((uintptr_t)memory + SPAN_BYTES - 1) & ~(uintptr_t)(SPAN_BYTES - 1));
        region_end = memory + size;
    }
    char *spans = region;
    region += n_bytes;
    return spans;
}

__attribute__((noinline)) static void *cut(size_t class)
{
    const size_t block_bytes = class_bytes(class);
    if ((size_t)(classes[class].end - classes[class].next) < block_bytes) {
        const size_t n_bytes =
            (HEAD_BYTES + block_bytes + SPAN_BYTES - 1) & ~(size_t)(SPAN_BYTES - 1);
        char *span = take_spans(n_bytes);
        if (!span) {
            errno = ENOMEM;
            return NULL;
        }
        *(Span *)span = (Span){class, block_bytes};
        classes[class].next = span + HEAD_BYTES;
        classes[class].end = span + (n_bytes > SPAN_BYTES ? HEAD_BYTES + block_bytes : n_bytes);
    }
    void *block = classes[class].next;
    classes[class].next += block_bytes;
    return block;
}

static Span *span_of(void *p) { return (Span *)((uintptr_t)p & ~(uintptr_t)(SPAN_BYTES - 1)); }

void *malloc(size_t n_bytes)
{
    if (n_bytes > PTRDIFF_MAX / 2) {
        errno = ENOMEM;
        return NULL;
    }
    const size_t class = class_of(n_bytes);
    Block *block = classes[class].free;
    if (!block)
        return cut(class);
    classes[class].free = block->next;
    return block;
}

void free(void *p)
{
    if (!p)
        return;
    const size_t class = span_of(p)->class;
    ((Block *)p)->next = classes[class].free;
    classes[class].free = p;
}

void *calloc(size_t n, size_t size)
{
    size_t n_bytes;
    if (__builtin_mul_overflow(n, size, &n_bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    void *p = malloc(n_bytes);
    return p ? memset(p, 0, n_bytes) : NULL;
}

void *realloc(void *p, size_t n_bytes)
{
    if (!p)
        return malloc(n_bytes);
    const size_t had_bytes = span_of(p)->block_bytes;
    if (n_bytes <= had_bytes)
        return p;
    void *larger = malloc(n_bytes);
    if (!larger)
        return NULL;
    memcpy(larger, p, had_bytes);
    free(p);
    return larger;
}

size_t malloc_usable_size(void *p) { return p ? span_of(p)->block_bytes : 0; }

/* Supports only the alignment of malloc(), because no simulated code requests a larger alignment. */
void *aligned_alloc(size_t alignment, size_t n_bytes)
{
    if (alignment <= STEP_BYTES)
        return malloc(n_bytes);
    errno = ENOMEM;
    return NULL;
}

void *memalign(size_t alignment, size_t n_bytes) { return aligned_alloc(alignment, n_bytes); }

int posix_memalign(void **ret, size_t alignment, size_t n_bytes)
{
    void *p = aligned_alloc(alignment, n_bytes);
    if (!p)
        return ENOMEM;
    *ret = p;
    return 0;
}
