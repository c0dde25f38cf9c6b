/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-contexts.c - any bytes as sdctl.json. They are refused with an error text, or give complete contexts with
 * different names, sorted by name. */
#include "ctl/context/context.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int open_file(void)
{
    char path[64];
    int fd = memfd_create("sdctl.json", MFD_CLOEXEC);
    assert(fd >= 0 && fchmod(fd, 0600) == 0);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    assert(unsetenv("XDG_CONFIG_HOME") == 0 && unsetenv("HOME") == 0);
    assert(setenv("SDTRAIN_CONTEXTS", path, 1) == 0);
    return fd;
}

static const char *value_of(const Context *c, const char *key)
{
    for (size_t i = 0; i < CONTEXT_KEYS; i++)
        if (strcmp(context_keys[i].name, key) == 0)
            return c->values[i];
    abort();
}

static void check(const Context *c)
{
    assert(*c->name && *value_of(c, "etcd"));
    assert(!*value_of(c, "etcd_cert") == !*value_of(c, "etcd_key"));
    assert(!*value_of(c, "etcd_user") == !*value_of(c, "etcd_password_file"));
    for (size_t i = 0; i < CONTEXT_KEYS; i++)
        assert(!context_keys[i].is_file || !*c->values[i] || c->values[i][0] == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1; /* contexts_read() needs a path, so one file serves all inputs */
    if (fd < 0)
        fd = open_file();
    assert(ftruncate(fd, 0) == 0 && pwrite(fd, data, n, 0) == (ssize_t)n);
    Error err = ERROR_INIT;
    Contexts contexts;
    if (contexts_read(&contexts, &err) < 0) {
        assert(err.text[0] && !contexts.all);
        return 0;
    }
    assert(contexts.n <= CONTEXTS_MAX);
    for (size_t i = 0; i < contexts.n; i++) {
        check(&contexts.all[i]);
        assert(i == 0 || strcmp(contexts.all[i - 1].name, contexts.all[i].name) < 0);
        assert(contexts_find(&contexts, contexts.all[i].name, &err) == &contexts.all[i]);
    }
    assert(contexts_find(&contexts, "no such name", &err) || strstr(err.text, "no context"));
    contexts_clear(&contexts);
    return 0;
}
