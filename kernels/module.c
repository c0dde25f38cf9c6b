/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - see module.h. */
#include "kernels/module.h"

#include "base/fault.h"
#include "base/file.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODULE_NAME "libsdtrain-cuda.so"
#define MODULE_VARIABLE "SDTRAIN_CUDA_MODULE"
#define MODULE_ENTRY "sdtrain_kernels_backend"

static void host_log(LogLevel level, const char *text) { log_write(level, "%s", text); }

static const KernelsHost host = {.log = host_log, .fault = fault};

/* Writes the path of the folder of the running program, without a slash at the end. */
static void program_folder(char *ret, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", ret, size - 1);
    ret[MAX(n, (ssize_t)0)] = '\0';
    char *slash = strrchr(ret, '/');
    if (slash)
        *slash = '\0';
}

/* Opens a shared object. On an error returns NULL, with the reason in `why`. Only regular files are opened: on a pipe
 * dlopen() would wait for a writer. */
static void *library_open(const char *path, char *why, size_t size)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        (void)snprintf(why, size, "%s is not a regular file", path);
        return NULL;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char *said = handle ? NULL : dlerror(); /* the message names the path */
    (void)snprintf(why, size, "%s", said ? said : path);
    return handle;
}

/* Gets the table of an open shared object. */
static int module_enter(void *handle, const char *path, const KernelsBackend **ret, Error *err)
{
    KernelsEntry *entry = (KernelsEntry *)dlsym(handle, MODULE_ENTRY);
    if (!entry)
        return error_set(err, -EPROTO, "%s has no %s: it is not a CUDA module of sdtrain", path,
                         MODULE_ENTRY);
    const KernelsBackend *backend = entry(&host);
    if (!backend || !backend->interface || strcmp(backend->interface, KERNELS_INTERFACE) != 0)
        return error_set(err, -EPROTO,
                         "%s is of another version of sdtrain (interface %.16s, this program's is "
                         "%.16s): install packages of one version",
                         path, backend && backend->interface ? backend->interface : "none",
                         KERNELS_INTERFACE);
    *ret = backend;
    return 0;
}

int kernels_module_open(const KernelsBackend **ret, Error *err)
{
    static const KernelsBackend *opened;
    if (opened) {
        *ret = opened;
        return 0;
    }

    char folder[PATH_MAX], paths[2][PATH_MAX + sizeof("/../lib/sdtrain/" MODULE_NAME)];
    const char *named = getenv(MODULE_VARIABLE);
    size_t n_paths = 2;
    program_folder(folder, sizeof(folder));
    (void)snprintf(paths[0], sizeof(paths[0]), "%s/" MODULE_NAME, folder);
    (void)snprintf(paths[1], sizeof(paths[1]), "%s/../lib/sdtrain/" MODULE_NAME, folder);
    if (named && *named) {
        if (*named != '/' || strlen(named) >= sizeof(paths[0]))
            return error_set(err, -ENODEV, MODULE_VARIABLE "=%.200s is not an absolute path",
                             named);
        (void)snprintf(paths[0], sizeof(paths[0]), "%s", named);
        n_paths = 1;
    }

    char tried[1024] = "";
    size_t used = 0;
    for (size_t i = 0; i < n_paths; i++) {
        char why[400];
        void *handle = library_open(paths[i], why, sizeof(why));
        if (handle) {
            int r = module_enter(handle, paths[i], &opened, err);
            if (r == 0)
                *ret = opened;
            return r;
        }
        int n = snprintf(tried + used, sizeof(tried) - used, "%s%s", i ? "; " : "", why);
        used = MIN(used + (size_t)MAX(n, 0), sizeof(tried) - 1);
    }
    return error_set(err, -ENODEV, "no CUDA module: %s", tried);
}
