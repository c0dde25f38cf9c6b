/* SPDX-License-Identifier: Apache-2.0 */
/* testing-libc.c - see testing-libc.h. */
#include "store/s3/test/testing-libc.h"

#include "base/clock.h"
#include "base/macro.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

atomic_uint_least64_t paused_usec;
atomic_int threads_left = -1, n_allocated, calloc_fails, malloc_fails, stream_fails;

/* ---- pauses, threads ---- */

int __wrap_nanosleep(const struct timespec *pause, struct timespec *rest);
uint64_t __real_clock_boottime_usec(void);
uint64_t __wrap_clock_boottime_usec(void);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *userdata);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *userdata);

int __wrap_nanosleep(const struct timespec *pause, _unused_ struct timespec *rest)
{
    const uint64_t usec = (uint64_t)pause->tv_nsec / NSEC_PER_USEC;
    atomic_fetch_add(&paused_usec, (uint64_t)pause->tv_sec * USEC_PER_SEC + usec);
    return 0;
}

uint64_t __wrap_clock_boottime_usec(void)
{
    return __real_clock_boottime_usec() + atomic_load(&paused_usec);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *userdata)
{
    if (atomic_load(&threads_left) == 0)
        return EAGAIN;
    if (atomic_load(&threads_left) > 0)
        atomic_fetch_sub(&threads_left, 1);
    return __real_pthread_create(thread, attributes, run, userdata);
}

/* ---- memory ---- */

void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t n, size_t n_bytes);
void *__real_reallocarray(void *p, size_t n, size_t n_bytes);
char *__real_strdup(const char *text);
int __real_vasprintf(char **ret, const char *format, va_list ap) _printf_(2, 0);
FILE *__real_open_memstream(char **text, size_t *n_bytes);
void __real_free(void *p);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_reallocarray(void *p, size_t n, size_t n_bytes);
char *__wrap_strdup(const char *text);
int __wrap_asprintf(char **ret, const char *format, ...) _printf_(2, 3);
int __wrap___asprintf_chk(char **ret, int flag, const char *format, ...) _printf_(3, 4);
int __wrap_vasprintf(char **ret, const char *format, va_list ap) _printf_(2, 0);
int __wrap___vasprintf_chk(char **ret, int flag, const char *format, va_list ap) _printf_(3, 0);
FILE *__wrap_open_memstream(char **text, size_t *n_bytes);
void __wrap_free(void *p);

static bool fails(atomic_int *at)
{
    if (atomic_load(at) == 0 || atomic_fetch_sub(at, 1) != 1)
        return false;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t n_bytes)
{
    if (fails(&malloc_fails))
        return NULL;
    atomic_fetch_add(&n_allocated, 1);
    return __real_malloc(n_bytes);
}

void *__wrap_calloc(size_t n, size_t n_bytes)
{
    if (fails(&calloc_fails))
        return NULL;
    atomic_fetch_add(&n_allocated, 1);
    return __real_calloc(n, n_bytes);
}

void *__wrap_reallocarray(void *p, size_t n, size_t n_bytes)
{
    atomic_fetch_add(&n_allocated, !p);
    return __real_reallocarray(p, n, n_bytes);
}

char *__wrap_strdup(const char *text)
{
    atomic_fetch_add(&n_allocated, 1);
    return __real_strdup(text);
}

int __wrap_vasprintf(char **ret, const char *format, va_list ap)
{
    atomic_fetch_add(&n_allocated, 1);
    return __real_vasprintf(ret, format, ap);
}

int __wrap_asprintf(char **ret, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = __wrap_vasprintf(ret, format, ap);
    va_end(ap);
    return n;
}

/* vasprintf() and asprintf() by the names under which _FORTIFY_SOURCE calls them. */
int __wrap___vasprintf_chk(char **ret, _unused_ int flag, const char *format, va_list ap)
{
    return __wrap_vasprintf(ret, format, ap);
}

int __wrap___asprintf_chk(char **ret, _unused_ int flag, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = __wrap_vasprintf(ret, format, ap);
    va_end(ap);
    return n;
}

/* Counts the stream's text as a block, since the caller must free the text. */
FILE *__wrap_open_memstream(char **text, size_t *n_bytes)
{
    if (fails(&stream_fails))
        return NULL;
    atomic_fetch_add(&n_allocated, 1);
    return __real_open_memstream(text, n_bytes);
}

void __wrap_free(void *p)
{
    atomic_fetch_sub(&n_allocated, p != NULL);
    __real_free(p);
}
