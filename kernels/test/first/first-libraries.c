/* SPDX-License-Identifier: Apache-2.0 */
/* first-libraries.c - cases "machine": the driver and its GPUs, and whether the module opens; and "libraries": each
 * place that has a library, and the library's version.
 *
 * Each copy of a library is opened in a separate process, because in one process two copies would load each other's
 * parts. */
#include "base/clock.h"
#include "base/memory.h"
#include "kernels/cuda/module/libraries.h"
#include "kernels/test/first/first.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* ---- the driver ---- */

typedef struct Driver {
    int (*init)(unsigned flags);
    int (*version)(int *ret);
    int (*count)(int *ret);
    int (*name)(char *ret, int size, int device);
    int (*attribute)(int *ret, int attribute, int device);
    int (*retain)(void **ret, int device);
    int (*set_current)(void *context);
    int (*memory)(size_t *ret_free, size_t *ret_total);
    int (*error_name)(int code, const char **ret);
} Driver;

enum { ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76 };

static json_t *code_text(const Driver *d, int code)
{
    const char *name = NULL;
    char text[128];
    if (d->error_name)
        (void)d->error_name(code, &name); /* on an error `name` stays NULL */
    (void)snprintf(text, sizeof(text), "%s (%d)", name ? name : "error", code);
    return code == 0 ? json_string("ok") : first_text(text);
}

static void look_at_gpu(const Driver *d, int index)
{
    char name[256] = "";
    int sms = 0, major = 0, minor = 0;
    size_t free_bytes = 0, total_bytes = 0;
    void *context = NULL;
    const uint64_t began = clock_monotonic_usec();
    json_t *line = json_pack("{s:i,s:o}", "gpu", index, "cuDeviceGetName",
                             code_text(d, d->name(name, sizeof(name) - 1, index)));
    json_object_set_new(line, "cuDeviceGetAttribute",
                        code_text(d, d->attribute(&sms, ATTRIBUTE_MULTIPROCESSORS, index)));
    (void)d->attribute(&major, ATTRIBUTE_MAJOR, index); /* fails only if the call before fails */
    (void)d->attribute(&minor, ATTRIBUTE_MINOR, index);
    int code = d->retain(&context, index);
    json_object_set_new(line, "cuDevicePrimaryCtxRetain", code_text(d, code));
    if (code == 0)
        code = d->set_current(context);
    if (code == 0)
        json_object_set_new(line, "cuMemGetInfo",
                            code_text(d, d->memory(&free_bytes, &total_bytes)));
    json_object_set_new(line, "name", first_text(name));
    json_object_set_new(line, "multiprocessors", json_integer(sms));
    json_object_set_new(line, "compute", json_real(major + 0.1 * minor));
    json_object_set_new(line, "free_bytes", json_integer((json_int_t)free_bytes));
    json_object_set_new(line, "total_bytes", json_integer((json_int_t)total_bytes));
    json_object_set_new(line, "seconds",
                        first_number((double)(clock_monotonic_usec() - began) * 1e-6));
    first_line(line);
}

static void look_at_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    Driver d = {NULL};
    int version = 0, n = 0;
    struct {
        const char *name;
        void *to;
    } functions[] = {
        {"cuInit", &d.init},
        {"cuDriverGetVersion", &d.version},
        {"cuDeviceGetCount", &d.count},
        {"cuDeviceGetName", &d.name},
        {"cuDeviceGetAttribute", &d.attribute},
        {"cuDevicePrimaryCtxRetain", &d.retain},
        {"cuCtxSetCurrent", &d.set_current},
        {"cuMemGetInfo_v2", &d.memory},
        {"cuGetErrorName", &d.error_name},
    };
    if (!handle) {
        first_failed("dlopen libcuda.so.1", -ENOENT, dlerror());
        return;
    }
    for (size_t i = 0; i < ELEMENTSOF(functions); i++) {
        void *symbol = dlsym(handle, functions[i].name);
        if (!symbol) {
            first_failed(functions[i].name, -ENOENT, "libcuda.so.1 does not have it");
            return;
        }
        memcpy(functions[i].to, &symbol, sizeof(symbol));
    }
    const uint64_t began = clock_monotonic_usec();
    json_t *line = json_pack("{s:o}", "cuInit", code_text(&d, d.init(0)));
    json_object_set_new(line, "seconds",
                        first_number((double)(clock_monotonic_usec() - began) * 1e-6));
    json_object_set_new(line, "cuDriverGetVersion", code_text(&d, d.version(&version)));
    json_object_set_new(line, "version", json_integer(version));
    json_object_set_new(line, "cuDeviceGetCount", code_text(&d, d.count(&n)));
    json_object_set_new(line, "gpus", json_integer(n));
    first_line(line);
    for (int i = 0; i < MIN(n, 8); i++)
        look_at_gpu(&d, i);
}

static void look_at_nodes(void)
{
    glob_t found = {0};
    json_t *all = json_array();
    if (glob("/dev/nvidia*", 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            json_array_append_new(all, first_text(found.gl_pathv[i]));
    globfree(&found);
    first_line(json_pack("{s:o}", "nodes", all));
}

/* ---- libraries ---- */

typedef struct Library {
    const char *name, *version;
    enum { RETURNED, GIVEN, MAJOR_MINOR } how; /* how the library's function returns the version */
} Library;

static const Library known[] = {
    {"libcudnn.so.9", "cudnnGetVersion", RETURNED},
    {"libcublasLt.so.13", "cublasLtGetVersion", RETURNED},
    {"libnccl.so.2", "ncclGetVersion", GIVEN},
    {"libnvrtc.so.13", "nvrtcVersion", MAJOR_MINOR},
};

typedef struct Opened {
    long version; /* < 0: the library cannot be opened, or reports no version */
    char text[PATH_MAX + 256];
} Opened;

static void open_library(const Library *l, const char *path, Opened *ret)
{
    struct link_map *map = NULL;
    int major = 0, minor = 0;
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    void *symbol = handle ? dlsym(handle, l->version) : NULL;
    ret->version = -1;
    if (!symbol) {
        (void)snprintf(ret->text, sizeof(ret->text), "%s", dlerror());
        return;
    }
    if (l->how == RETURNED) {
        ret->version = (long)((size_t(*)(void))symbol)();
    } else if (l->how == GIVEN) {
        if (((int (*)(int *))symbol)(&major) == 0)
            ret->version = major;
    } else if (((int (*)(int *, int *))symbol)(&major, &minor) == 0) {
        ret->version = major * 1000L + minor * 10;
    }
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0)
        (void)snprintf(ret->text, sizeof(ret->text), "%s", map->l_name);
}

static void look_at_library(const Library *l, const char *place, const char *path)
{
    int fds[2], status = 0;
    Opened opened = {.version = -1, .text = "it ended the process that opened it"};
    if (pipe2(fds, O_CLOEXEC) < 0)
        return;
    const pid_t pid = fork();
    if (pid == 0) {
        Opened told = {0};
        (void)alarm(10);
        open_library(l, path, &told);
        _exit(write(fds[1], &told, sizeof(told)) == (ssize_t)sizeof(told) ? 0 : 1);
    }
    (void)fd_close(fds[1]);
    if (pid > 0) {
        size_t n = 0;
        ssize_t more;
        char bytes[sizeof(opened)];
        while (n < sizeof(bytes) && (more = read(fds[0], bytes + n, sizeof(bytes) - n)) > 0)
            n += (size_t)more;
        if (n == sizeof(opened))
            memcpy(&opened, bytes, n);
        (void)waitpid(pid, &status, 0); /* the child always ends, at the latest by its alarm */
    }
    (void)fd_close(fds[0]);
    json_t *line = json_pack("{s:s,s:s,s:o}", "library", l->name, "place", place,
                             opened.version < 0 ? "error" : "path", first_text(opened.text));
    if (opened.version >= 0)
        json_object_set_new(line, "version", json_integer(opened.version));
    first_line(line);
}

/* Checks the libraries in all folders that match a pattern. */
static void look_in(const char *place, const char *pattern)
{
    glob_t found = {0};
    for (size_t i = 0; i < ELEMENTSOF(known); i++) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof(path), "%s/%s", pattern, known[i].name);
        if (glob(path, 0, NULL, &found) == 0)
            for (size_t k = 0; k < found.gl_pathc; k++)
                look_at_library(&known[i], place, found.gl_pathv[k]);
        globfree(&found);
    }
}

static void look_in_wheels(void)
{
    char folder[PATH_MAX];
    FILE *told = popen("timeout -k 1 8 python3 -c 'import sys; print(sys.executable); "
                       "print(*[p for p in sys.path if p[:1] == \"/\"], sep=\"\\n\")' 2>/dev/null",
                       "r");
    for (int i = 0; told && i < 64 && fgets(folder, sizeof(folder), told); i++) {
        char pattern[PATH_MAX + 32];
        folder[strcspn(folder, "\n")] = '\0';
        if (i == 0)
            first_line(json_pack("{s:o}", "python", first_text(folder)));
        (void)snprintf(pattern, sizeof(pattern), "%s/nvidia/*/lib", folder);
        if (i > 0)
            look_in("wheel", pattern);
    }
    if (told)
        (void)pclose(told); /* ignored: without a Python there was no output */
}

static void look_at_libraries(void)
{
    const char *named = getenv("SDTRAIN_CUDA_LIBRARIES"), *path = getenv("LD_LIBRARY_PATH");
    first_line(json_pack("{s:o,s:o}", "SDTRAIN_CUDA_LIBRARIES", first_text(named),
                         "LD_LIBRARY_PATH", first_text(path)));
    for (size_t i = 0; i < ELEMENTSOF(known); i++)
        look_at_library(&known[i], "loader", known[i].name);
    char *folders = memory_text(named ? named : "");
    char *rest = folders;
    for (char *folder; (folder = strsep(&rest, ":"));)
        if (*folder == '/')
            look_in("SDTRAIN_CUDA_LIBRARIES", folder);
    free(folders);
    look_in("toolkit", "/usr/local/cuda/lib64");
    look_in_wheels();
}

static void look_at_choice(void)
{
    const CudaLibraries *l;
    Error err = ERROR_INIT;
    int r = cuda_libraries_open(&l, &err);
    if (r < 0)
        first_failed("cuda_libraries_open", r, err.text);
    else
        first_line(json_pack("{s:i,s:s,s:I,s:s,s:i}", "cudnn", l->cudnn_version, "cudnn_folder",
                             l->cudnn_folder, "cublaslt", (json_int_t)l->cublaslt_version,
                             "cublaslt_folder", l->cublaslt_folder, "nvrtc", l->nvrtc_version));
}

/* ---- the module ---- */

static void look_at_module(DataType type)
{
    Device *device = NULL;
    Error err = ERROR_INIT;
    char *numerics = NULL;
    const DeviceOptions options = {.kind = DEVICE_CUDA, .threads = 1, .type = type};
    const uint64_t began = clock_monotonic_usec();
    int r = device_open(&options, &device, &err);
    const uint64_t opened = clock_monotonic_usec();
    json_t *line = json_pack("{s:s,s:s,s:i,s:f}", "api", "device_open", "type",
                             type == DATA_F32 ? "fp32" : "bf16", "code", r, "seconds",
                             (double)(opened - began) * 1e-6);
    if (r < 0) {
        json_object_set_new(line, "text", first_text(err.text));
        first_line(line);
        return;
    }
    json_object_set_new(line, "memory_bytes",
                        json_integer((json_int_t)device_memory_bytes(device)));
    first_line(json_deep_copy(line));
    r = device_numerics(device, &numerics);
    json_object_set_new(line, "numerics_code", json_integer(r));
    json_object_set_new(line, "numerics", r < 0 ? json_null() : first_text(numerics));
    json_object_set_new(line, "numerics_seconds",
                        first_number((double)(clock_monotonic_usec() - opened) * 1e-6));
    first_line(line);
    free(numerics);
    (void)device_free(device);
}

int first_machine(void)
{
    look_at_nodes();
    look_at_driver();
    look_at_choice();
    look_at_module(DATA_F32);
    look_at_module(DATA_BF16);
    return 0;
}

int first_places(void)
{
    look_at_libraries();
    return 0;
}
