/* SPDX-License-Identifier: Apache-2.0 */
/* testing-alloc.c - see testing-alloc.h. */
#include "base/test/testing-alloc.h"

#include "base/test/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t n, size_t n_bytes);
void *__real_realloc(void *p, size_t n_bytes);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_realloc(void *p, size_t n_bytes);
void *__wrap_reallocarray(void *p, size_t n, size_t n_bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);
int __wrap_vasprintf(char **ret, const char *format, va_list ap) _printf_(2, 0);
int __wrap_asprintf(char **ret, const char *format, ...) _printf_(2, 3);

static struct {
    atomic_uint left; /* the number, from now on, of the allocation that fails; 0: none */
    atomic_bool struck;
    bool anywhere;
    pthread_t thread;
} fuse;

static void arm(unsigned n, bool anywhere)
{
    fuse.anywhere = anywhere;
    fuse.thread = pthread_self();
    atomic_store(&fuse.struck, false);
    atomic_store(&fuse.left, n);
}

void alloc_fail_at(unsigned n) { arm(n, false); }
void alloc_fail_at_anywhere(unsigned n) { arm(n, true); }

bool alloc_struck(void)
{
    atomic_store(&fuse.left, 0);
    return atomic_load(&fuse.struck);
}

static bool fails(void)
{
    unsigned left = atomic_load(&fuse.left);
    if (left == 0 || (!fuse.anywhere && !pthread_equal(fuse.thread, pthread_self())))
        return false;
    while (left > 0 && !atomic_compare_exchange_weak(&fuse.left, &left, left - 1))
        ;
    if (left != 1)
        return false;
    atomic_store(&fuse.struck, true);
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t n_bytes) { return fails() ? NULL : __real_malloc(n_bytes); }

void *__wrap_calloc(size_t n, size_t n_bytes) { return fails() ? NULL : __real_calloc(n, n_bytes); }

void *__wrap_realloc(void *p, size_t n_bytes)
{
    return fails() ? NULL : __real_realloc(p, n_bytes);
}

void *__wrap_reallocarray(void *p, size_t n, size_t n_bytes)
{
    size_t product;
    if (__builtin_mul_overflow(n, n_bytes, &product)) {
        errno = ENOMEM;
        return NULL;
    }
    return fails() ? NULL : __real_realloc(p, product);
}

char *__wrap_strndup(const char *text, size_t n)
{
    size_t length = strnlen(text, n);
    char *copy = fails() ? NULL : __real_malloc(length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *__wrap_strdup(const char *text) { return __wrap_strndup(text, strlen(text)); }

int __wrap_vasprintf(char **ret, const char *format, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    *ret = n < 0 || fails() ? NULL : __real_malloc((size_t)n + 1);
    return *ret ? vsnprintf(*ret, (size_t)n + 1, format, ap) : -1;
}

int __wrap_asprintf(char **ret, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = __wrap_vasprintf(ret, format, ap);
    va_end(ap);
    return n;
}

enum { STATUS_UNSTRUCK = 10 };

static _noreturn_ void live(AllocLife (*life)(unsigned n, void *arg), unsigned n, void *arg)
{
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0)
        (void)dup2(nowhere, STDERR_FILENO); /* otherwise hundreds of error messages are shown */
    AllocLife end = life(n, arg);
    bool struck = atomic_load(&fuse.struck);
    assert(struck || end != ALLOC_FAILED);
    exit(end == ALLOC_WRONG ? 99 : struck ? (int)end : STATUS_UNSTRUCK);
}

unsigned alloc_sweep(AllocLife (*life)(unsigned n, void *arg), void *arg, unsigned max)
{
    unsigned n_failed = 0;
    for (unsigned n = 1;; n++) {
        if (n > max)
            fail_msg("more than %u allocations", max);
        (void)fflush(NULL);
        pid_t pid = fork();
        if (pid == 0)
            live(life, n, arg);
        int status = 0;
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_UNSTRUCK)
            return n_failed;
        bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
        if (!aborted && (!WIFEXITED(status) || WEXITSTATUS(status) > ALLOC_FAILED))
            fail_msg("allocation %u: wait status %x", n, (unsigned)status);
        n_failed += aborted || WEXITSTATUS(status) == ALLOC_FAILED;
    }
}
