/* SPDX-License-Identifier: Apache-2.0 */
/* libraries.c - see libraries.h. */
#include "kernels/cuda/module/libraries.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "kernels/cuda/module/forward.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define VARIABLE "SDTRAIN_CUDA_LIBRARIES"
#define TOOLKIT "/usr/local/cuda/lib64"
#define TEXT_OF(x) #x
#define NAME(stem, major) stem TEXT_OF(major)
#define CUDNN_NAME NAME("libcudnn.so.", CUDNN_MAJOR)
#define CUBLASLT_NAME NAME("libcublasLt.so.", CUBLAS_VER_MAJOR)
#define NVRTC_STEM "libnvrtc.so"

/* The libraries that libcudnn opens by name when it needs them. This module opens each of them earlier, by its full
 * path, because the loader would search LD_LIBRARY_PATH first. libcudnn_graph is opened before libcudnn, because
 * libcudnn gets its version from libcudnn_graph. */
static const char *const cudnn_parts[] = {
    NAME("libcudnn_graph.so.", CUDNN_MAJOR),
    NAME("libcudnn_ops.so.", CUDNN_MAJOR),
    NAME("libcudnn_heuristic.so.", CUDNN_MAJOR),
    NAME("libcudnn_engines_precompiled.so.", CUDNN_MAJOR),
    NAME("libcudnn_engines_runtime_compiled.so.", CUDNN_MAJOR),
    NAME("libcudnn_engines_tensor_ir.so.", CUDNN_MAJOR),
    NAME("libcudnn_ext.so.", CUDNN_MAJOR),
};

enum { FOLDERS_MAX = 64, PATTERNS_MAX = 32, HANDLES_MAX = 4 + ELEMENTSOF(cudnn_parts) };

typedef struct Place { /* a Place borrows its texts */
    const char *name;
    bool system; /* the loader finds the libraries; there are no folders */
    const char *folders[FOLDERS_MAX];
    size_t n_folders;
} Place;

typedef struct Attempt { /* an attempt to open the libraries of one place */
    CudaLibraries found;
    void *handles[HANDLES_MAX];
    size_t n_handles;
} Attempt;

typedef struct Search {
    CudaLibraries *ret;
    bool done, other_version;
    char said[448]; /* a message for each unusable place */
    size_t used;
} Search;

static void note_place(Search *s, const char *place, const char *why)
{
    int n = snprintf(s->said + s->used, sizeof(s->said) - s->used, "%s%.120s: %.200s",
                     s->used ? "; " : "", place, why);
    s->used = MIN(s->used + (size_t)MAX(n, 0), sizeof(s->said) - 1);
}

/* ---- files ---- */

/* Finds the real path of the library that the loader finds by this name. If LD_LIBRARY_PATH has an empty or relative
 * entry, the loader would search the current folder, so the function refuses. */
static int system_file(const char *name, char ret[PATH_MAX], Error *err)
{
    const char *folders = getenv("LD_LIBRARY_PATH");
    if (folders && *folders &&
        (*folders != '/' || strstr(folders, "::") || folders[strlen(folders) - 1] == ':'))
        return error_set(err, -ENODEV, "LD_LIBRARY_PATH names the current folder");
    for (const char *p = folders; p && (p = strchr(p, ':')); p++)
        if (p[1] != '/')
            return error_set(err, -ENODEV, "LD_LIBRARY_PATH names the current folder");

    void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    struct link_map *map = NULL;
    if (!handle)
        return error_set(err, -ENODEV, "no %s", name);
    int r = 0;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) < 0 || !realpath(map->l_name, ret))
        r = error_set(err, -ENODEV, "the path of %s is not known", name);
    (void)dlclose(handle); /* the library is opened again by its path */
    return r;
}

static int place_file(const Place *place, const char *name, char ret[PATH_MAX], Error *err)
{
    if (place->system)
        return system_file(name, ret, err);
    for (size_t i = 0; i < place->n_folders; i++) {
        char path[PATH_MAX];
        struct stat st;
        int n = snprintf(path, sizeof(path), "%s/%s", place->folders[i], name);
        if (n < (int)sizeof(path) && stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
            realpath(path, ret))
            return 0;
    }
    return error_set(err, -ENODEV, "no %s", name);
}

static void folder_of(const char *path, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%.*s", (int)(strrchr(path, '/') - path), path);
}

/* ---- one place ---- */

static int attempt_open(Attempt *a, const char *path, void **ret, Error *err)
{
    assert(a->n_handles < HANDLES_MAX);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror(); /* the message names the path */
        return error_set(err, -ENODEV, "%s", why ? why : path);
    }
    a->handles[a->n_handles++] = handle;
    if (ret)
        *ret = handle;
    return 0;
}

static void attempt_close(Attempt *a)
{
    while (a->n_handles > 0)
        (void)dlclose(a->handles[--a->n_handles]); /* a library that stays open is never called */
}

/* Opens a part from the folder of cuDNN or cuBLASLt; not every version has every part. The library that the loader then
 * returns for the part's name must be the opened one, because libcudnn opens its parts by name. */
static int attempt_part(Attempt *a, const char *folder, const char *name, void **ret, Error *err)
{
    char path[PATH_MAX];
    void *handle = NULL;
    *ret = NULL;
    int n = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (n >= (int)sizeof(path) || access(path, F_OK) < 0)
        return 0;
    int r = attempt_open(a, path, &handle, err);
    if (r < 0)
        return r;
    void *given = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (given)
        (void)dlclose(given); /* the first handle stays open */
    if (given && given != handle)
        return error_set(err, -EPROTO, "another %s is open in this program", name);
    *ret = handle;
    return 0;
}

static int check_version(const char *what, size_t version, size_t unit, size_t compiled, Error *err)
{
    /* A later minor version keeps the functions of earlier ones. Differences in bits are handled by the numerics
     * record. */
    const size_t major = unit * 100;
    if (version / major == compiled / major && version / unit >= compiled / unit)
        return 0;
    return error_set(err, -EPROTO,
                     "%s is of version %zu, this module is for %zu.%zu and later of %zu", what,
                     version, compiled / major, compiled / unit % 100, compiled / major);
}

/* Checks the version in the file name of an installed library, to which a link leads. This is done before any library
 * is opened, because the loader never closes some of cuDNN's parts, and would give them by name to the cuDNN of another
 * place. */
static int check_file_name(const char *path, const char *what, size_t compiled, Error *err)
{
    unsigned major, minor, patch;
    const char *numbers = strstr(strrchr(path, '/'), ".so.");
    if (!numbers || sscanf(numbers, ".so.%3u.%3u.%3u", &major, &minor, &patch) != 3)
        return 0;
    return check_version(what, major * 10000 + minor * 100 + patch, 100, compiled, err);
}

static int read_versions(Attempt *a, void *cudnn, void *cublaslt, Error *err)
{
    size_t (*of_cudnn)(void) = (size_t(*)(void))dlsym(cudnn, "cudnnGetVersion");
    size_t (*of_cublaslt)(void) = (size_t(*)(void))dlsym(cublaslt, "cublasLtGetVersion");
    if (!of_cudnn || !of_cublaslt)
        return error_set(err, -ENODEV, "%s has no version", of_cudnn ? CUBLASLT_NAME : CUDNN_NAME);
    a->found.cudnn_version = (int)of_cudnn();
    a->found.cublaslt_version = of_cublaslt();
    int r = check_version(CUDNN_NAME, (size_t)a->found.cudnn_version, 100, CUDNN_VERSION, err);
    return r < 0
               ? r
               : check_version(CUBLASLT_NAME, a->found.cublaslt_version, 100, CUBLAS_VERSION, err);
}

/* Opens NVRTC and its built-in functions, which NVRTC opens by name. */
static int open_nvrtc(Attempt *a, const Place *place, Error *err)
{
    char name[64], path[PATH_MAX], folder[PATH_MAX];
    void *handle = NULL, *unused = NULL;
    int major = 0, minor = 0;
    (void)snprintf(name, sizeof(name), NVRTC_STEM ".%d", CUDART_VERSION / 1000);
    if (place_file(place, name, path, NULL) < 0)
        return 0;
    folder_of(path, folder);
    int r = attempt_part(a, folder, name, &handle, err);
    if (r < 0 || !handle)
        return r;
    int (*version)(int *, int *) = (int (*)(int *, int *))dlsym(handle, "nvrtcVersion");
    if (!version || version(&major, &minor) != 0)
        return error_set(err, -ENODEV, "%s has no version", name);
    a->found.nvrtc_version = major * 1000 + minor * 10;
    (void)snprintf(name, sizeof(name), "libnvrtc-builtins.so.%d.%d", major, minor);
    return attempt_part(a, folder, name, &unused, err);
}

static int open_place(Attempt *a, const Place *place, Error *err)
{
    char cudnn_path[PATH_MAX], cublaslt_path[PATH_MAX];
    void *cudnn = NULL, *cublaslt = NULL, *unused = NULL;
    int r = place_file(place, CUDNN_NAME, cudnn_path, err);
    if (r == 0)
        r = place_file(place, CUBLASLT_NAME, cublaslt_path, err);
    if (r == 0)
        r = check_file_name(cudnn_path, CUDNN_NAME, CUDNN_VERSION, err);
    if (r == 0)
        r = check_file_name(cublaslt_path, CUBLASLT_NAME, CUBLAS_VERSION, err);
    if (r < 0)
        return r;
    folder_of(cudnn_path, a->found.cudnn_folder);
    folder_of(cublaslt_path, a->found.cublaslt_folder);
    r = attempt_part(a, a->found.cudnn_folder, cudnn_parts[0], &unused, err);
    if (r == 0)
        r = attempt_open(a, cudnn_path, &cudnn, err);
    if (r == 0)
        r = attempt_open(a, cublaslt_path, &cublaslt, err);
    if (r == 0)
        r = read_versions(a, cudnn, cublaslt, err);
    for (size_t i = 1; r == 0 && i < ELEMENTSOF(cudnn_parts); i++)
        r = attempt_part(a, a->found.cudnn_folder, cudnn_parts[i], &unused, err);
    if (r == 0)
        r = open_nvrtc(a, place, err);
    if (r < 0)
        return r;
    const char *missing = forward_fill(cudnn, cublaslt);
    return missing ? error_set(err, -EPROTO, "there is no %s() in it", missing) : 0;
}

static void try_place(Search *s, const Place *place)
{
    Attempt attempt = {.n_handles = 0};
    Error err = ERROR_INIT;
    if (s->done)
        return;
    int r = open_place(&attempt, place, &err);
    if (r < 0) {
        attempt_close(&attempt);
        s->other_version |= r == -EPROTO;
        note_place(s, place->name, err.text);
        return;
    }
    *s->ret = attempt.found;
    s->done = true;
}

/* ---- the places ---- */

/* Tries the folders that the operator names. Reports what is wrong with a folder. */
static void try_named(Search *s, const char *value)
{
    _cleanup_free_ char *texts = strdup(value);
    Place place = {.name = VARIABLE};
    if (!texts)
        return note_place(s, VARIABLE, "out of memory");
    for (char *rest = texts, *folder; (folder = strsep(&rest, ":"));) {
        struct stat st;
        if (!*folder)
            continue;
        if (*folder != '/')
            return note_place(s, folder, "it is not an absolute path (" VARIABLE ")");
        if (stat(folder, &st) < 0)
            return note_place(s, folder, strerror(errno));
        if (!S_ISDIR(st.st_mode))
            return note_place(s, folder, strerror(ENOTDIR));
        if (place.n_folders == FOLDERS_MAX)
            return note_place(s, VARIABLE, "too many folders");
        place.folders[place.n_folders++] = folder;
    }
    char name[sizeof(VARIABLE) + 120];
    (void)snprintf(name, sizeof(name), VARIABLE "=%.100s", value);
    place.name = name;
    try_place(s, &place);
}

static void try_wheels_of(Search *s, const char *packages)
{
    char pattern[PATH_MAX];
    _cleanup_(globfree) glob_t found = {0};
    Place place = {.name = packages};
    int n = snprintf(pattern, sizeof(pattern), "%s/*/lib", packages);
    if (n >= (int)sizeof(pattern) || glob(pattern, 0, NULL, &found) != 0)
        return note_place(s, packages, "it holds no library");
    for (size_t i = 0; i < found.gl_pathc && i < FOLDERS_MAX; i++)
        place.folders[place.n_folders++] = found.gl_pathv[i];
    try_place(s, &place);
}

static void add_pattern(glob_t *to, const char *prefix, const char *rest)
{
    char pattern[PATH_MAX];
    int n = snprintf(pattern, sizeof(pattern), "%s%s", prefix, rest);
    if (n < (int)sizeof(pattern))
        (void)glob(pattern, to->gl_pathc ? GLOB_APPEND : 0, NULL, to); /* no match adds nothing */
}

static void try_wheels(Search *s)
{
    _cleanup_(globfree) glob_t packages = {0};
    const char *environment = getenv("VIRTUAL_ENV"), *programs = getenv("PATH");
    _cleanup_free_ char *texts = strdup(programs ? programs : "");
    int n = 0;
    if (environment && *environment == '/')
        add_pattern(&packages, environment, "/lib/python3*/site-packages/nvidia");
    for (char *rest = texts, *folder; texts && (folder = strsep(&rest, ":")) && n < PATTERNS_MAX;) {
        char python[PATH_MAX];
        int length = snprintf(python, sizeof(python), "%s/python3", folder);
        if (*folder != '/' || length >= (int)sizeof(python) || access(python, X_OK) < 0)
            continue;
        add_pattern(&packages, folder, "/../lib/python3*/site-packages/nvidia");
        n++;
    }
    add_pattern(&packages, "/usr/local", "/lib/python3*/dist-packages/nvidia");
    add_pattern(&packages, "/usr", "/lib/python3*/dist-packages/nvidia");
    if (packages.gl_pathc == 0)
        note_place(s, "site-packages/nvidia", "of no python3");
    for (size_t i = 0; i < packages.gl_pathc; i++)
        try_wheels_of(s, packages.gl_pathv[i]);
}

int cuda_libraries_find(const char *toolkit, CudaLibraries *ret, Error *err)
{
    const Place from_system = {.name = "the system", .system = true};
    const Place from_toolkit = {.name = toolkit, .folders = {toolkit}, .n_folders = 1};
    Search s = {.ret = ret};
    const char *named = getenv(VARIABLE);
    if (named && *named)
        try_named(&s, named);
    else {
        try_place(&s, &from_system);
        try_place(&s, &from_toolkit);
        if (!s.done)
            try_wheels(&s);
    }
    if (s.done)
        return 0;
    return error_set(err, s.other_version ? -EPROTO : -ENODEV, "no cuDNN and cuBLASLt: %s", s.said);
}

int cuda_libraries_open(const CudaLibraries **ret, Error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static CudaLibraries opened;
    static bool done;
    int r = pthread_mutex_lock(&lock);
    assert(r == 0);
    int result = done ? 0 : cuda_libraries_find(TOOLKIT, &opened, err);
    if (result == 0 && !done)
        log_info("cuDNN %d of %s, cuBLASLt %zu of %s, NVRTC %d (0: none)", opened.cudnn_version,
                 opened.cudnn_folder, opened.cublaslt_version, opened.cublaslt_folder,
                 opened.nvrtc_version);
    done = result == 0;
    r = pthread_mutex_unlock(&lock);
    assert(r == 0);
    if (result == 0)
        *ret = &opened;
    return result;
}
