/* SPDX-License-Identifier: Apache-2.0 */
/* host-memory.c - see host-memory.h. */
#include "kernels/cuda/module/host-memory.h"

#include "base/cleanup.h"
#include "base/memory.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS_MAX = 16, PAGE_BYTES = 4096 };

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
/* For fewer bytes than this, starting a thread takes longer than touching the pages. */
#define THREAD_BYTES ((size_t)64 << 20)

typedef struct Part {
    char *memory;
    size_t n_bytes;
} Part;

/* Writes each page once: at the first write the kernel makes the page, filled with zeros. */
static void *touch(void *userdata)
{
    const Part *part = userdata;
    for (size_t at = 0; at < part->n_bytes; at += PAGE_BYTES)
        *(volatile char *)(part->memory + at) = 0;
    return NULL;
}

static int processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Touches the memory in parts of whole huge pages, one part for each thread. If a thread cannot be started, the caller
 * touches that thread's part. */
static void touch_all(char *memory, size_t n_bytes)
{
    const size_t wanted = CLAMP(n_bytes / THREAD_BYTES, (size_t)1, (size_t)THREADS_MAX);
    const size_t n = MIN(wanted, (size_t)MAX(processors(), 1));
    const size_t each = DIV_ROUND_UP(DIV_ROUND_UP(n_bytes, n), HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES;
    Part parts[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    bool started[THREADS_MAX] = {false};
    for (size_t i = 0; i < n; i++) {
        const size_t from = MIN(i * each, n_bytes);
        parts[i] = (Part){memory + from, MIN(each, n_bytes - from)};
        if (i > 0)
            started[i] = pthread_create(&threads[i], NULL, touch, &parts[i]) == 0;
    }
    for (size_t i = 0; i < n; i++)
        if (!started[i])
            (void)touch(&parts[i]); /* its result is always NULL */
    for (size_t i = 0; i < n; i++)
        if (started[i]) {
            int r = pthread_join(threads[i], NULL);
            assert(r == 0);
        }
}

/* The page before the memory contains the length of the mapping. */
int host_memory_new(size_t n_bytes, void **ret)
{
    if (n_bytes > SIZE_MAX - PAGE_BYTES)
        return -ENOMEM;
    const size_t whole = PAGE_BYTES + n_bytes;
    char *memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    (void)madvise(memory, whole, MADV_HUGEPAGE); /* if it fails, small pages are used */
    touch_all(memory, whole);
    memcpy(memory, &whole, sizeof(whole));
    *ret = memory + PAGE_BYTES;
    return 0;
}

void host_memory_free(void *memory)
{
    size_t whole;
    if (!memory)
        return;
    char *begin = (char *)memory - PAGE_BYTES;
    memcpy(&whole, begin, sizeof(whole));
    int r = munmap(begin, whole);
    assert(r == 0); /* the mapping has this length */
}
