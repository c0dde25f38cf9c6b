/* SPDX-License-Identifier: Apache-2.0 */
/* plans.c - see plans.h. */
#include "kernels/cuda/plans/plans.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernels/kernels.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    VALUES_MAX = 1 << 17, /* values in one text: 32 for each of CUDA_PLANS_OPERATIONS_MAX */
    NAME_MAX_CHARACTERS = 160,
    KNOBS_MAX = 64,
    FILES_MAX = 1024, /* the most files that are read in one folder */
    OPAQUE_DIGITS = 2 * CUDA_PLANS_OPAQUE_BYTES,
};

static const int64_t workspace_max = INT64_C(1) << 40;

struct CudaPlans {
    bool plain, tuned;
    CudaMachine machine;
    json_t *operations; /* an object; empty for a plain set */
};

CudaPlans *cuda_plans_new(const CudaMachine *machine)
{
    CudaPlans *plans = memory_new(CudaPlans);
    plans->plain = !machine;
    plans->tuned = true;
    plans->machine = machine ? *machine : (CudaMachine){.sms = 0};
    plans->operations = json_object();
    return plans;
}

CudaPlans *cuda_plans_free(CudaPlans *plans)
{
    if (plans)
        json_decref(plans->operations);
    free(plans);
    return NULL;
}

/* ---- reading ---- */

static void read_opaque(JsonReader *algorithm)
{
    const char *told;
    if (!json_get_string(algorithm, "opaque", JSON_OPTIONAL, &told))
        return;
    if (strlen(told) != OPAQUE_DIGITS)
        json_refuse(algorithm, "opaque", "%zu characters, not the %d of %d bytes", strlen(told),
                    OPAQUE_DIGITS, CUDA_PLANS_OPAQUE_BYTES);
    else if (strspn(told, "0123456789abcdef") != OPAQUE_DIGITS)
        json_refuse(algorithm, "opaque", "not only lower-case hexadecimal digits");
}

/* Reads an algorithm. The two allowed reductions are CUBLASLT_REDUCTION_SCHEME_NONE and _COMPUTE_TYPE, where the
 * partial sums of a split are in the workspace, in fp32. With the reduction in place, the order of the sum would be the
 * order in which blocks finish; with the reduction in the output's type, partial sums would be rounded. */
static void read_algorithm(JsonReader *entry)
{
    JsonReader a = json_get_object(entry, "algorithm", JSON_REQUIRED);
    static const char *const keys[] = {"id",     "tile",        "stages",       "swizzling",
                                       "custom", "inner_shape", "cluster_shape"};
    int64_t value, reduction = 0, split = 1;
    for (size_t i = 0; i < ELEMENTSOF(keys); i++)
        (void)json_get_int(&a, keys[i], JSON_REQUIRED, 0, INT32_MAX, &value);
    (void)json_get_int(&a, "split_k", JSON_REQUIRED, 0, INT32_MAX, &split);
    if (json_get_int(&a, "reduction", JSON_REQUIRED, 0, INT32_MAX, &reduction) && reduction != 0 &&
        reduction != 2)
        json_refuse(&a, "reduction", "%lld is neither 0 (none) nor 2 (in the workspace, in fp32)",
                    (long long)reduction);
    read_opaque(&a);
    (void)json_close(&a);
}

static void read_workspace(JsonReader *entry)
{
    int64_t workspace;
    (void)json_get_int(entry, "workspace", JSON_REQUIRED, 0, workspace_max, &workspace);
}

/* Reads the type of a weight's gradient. It cannot be chosen yet; the key informs people. */
static void read_dw(JsonReader *entry, const char *type)
{
    char told[8];
    if (json_get_text(entry, "dw", JSON_OPTIONAL, told, sizeof(told)) && strcmp(told, type) != 0)
        json_refuse(entry, "dw", "%s: it must be %s", told, type);
}

/* Reads "variant": how much of the work after the sums the library does. */
static void read_variant(JsonReader *entry)
{
    char told[16];
    if (!json_get_text(entry, "variant", JSON_OPTIONAL, told, sizeof(told)) ||
        strcmp(told, CUDA_PLAN_VARIANT) == 0)
        return;
    if (strcmp(told, "fused") == 0)
        json_refuse(entry, "variant",
                    "fused: this module has only the plain one: sdtrainer plan makes plans of it");
    else
        json_refuse(entry, "variant", "%s is neither plain nor fused", told);
}

/* Reads whether our own kernels compute the operation. */
static bool read_own_kernels(JsonReader *entry)
{
    bool own;
    if (!json_get_bool(entry, "own_kernels", JSON_OPTIONAL, &own))
        return false;
    if (!own)
        json_refuse(entry, "own_kernels", "false: leave it out");
    return true;
}

static void read_linear(JsonReader *entry)
{
    if (read_own_kernels(entry))
        return;
    read_workspace(entry);
    read_dw(entry, "f32");
    read_variant(entry);
    read_algorithm(entry);
}

static void read_engine(JsonReader *entry)
{
    const char *key;
    json_t *value;
    int64_t engine;
    (void)json_get_int(entry, "engine", JSON_REQUIRED, 0, INT32_MAX, &engine);
    JsonReader knobs = json_get_object(entry, "knobs", JSON_REQUIRED);
    if (knobs.object && json_object_size(knobs.object) > KNOBS_MAX) {
        json_refuse(entry, "knobs", "%zu are more than %d", json_object_size(knobs.object),
                    KNOBS_MAX);
        return;
    }
    json_object_foreach (knobs.object, key, value) {
        char *end;
        int64_t choice;
        const unsigned long knob = strtoul(key, &end, 10);
        if (*key < '0' || *key > '9' || *end || knob > INT32_MAX)
            json_refuse(&knobs, key, "is not the number of a knob");
        (void)json_get_int(&knobs, key, JSON_REQUIRED, INT32_MIN, INT32_MAX, &choice);
    }
    (void)json_close(&knobs);
}

static void read_conv(JsonReader *entry)
{
    if (read_own_kernels(entry))
        return;
    read_workspace(entry);
    read_dw(entry, "bf16");
    read_variant(entry);
    read_engine(entry);
}

/* Reads an engine, the number of images at once, and whether the graph has a padding mask; or reads that our own
 * kernels compute the shape. */
static void read_attention(JsonReader *entry)
{
    int64_t images;
    bool mask;
    if (read_own_kernels(entry))
        return;
    read_workspace(entry);
    (void)json_get_int(entry, "images", JSON_OPTIONAL, 1, INT32_MAX, &images);
    if (json_get_bool(entry, "padding_mask", JSON_OPTIONAL, &mask) && !mask)
        json_refuse(entry, "padding_mask", "false: leave it out");
    read_engine(entry);
}

static void read_product(JsonReader *entry)
{
    read_workspace(entry);
    read_algorithm(entry);
}

/* The first word of an operation's name, and the function that reads its entry. */
static const struct {
    const char *name;
    void (*read)(JsonReader *entry);
} kinds[] = {{"linear", read_linear},
             {"product", read_product},
             {"conv", read_conv},
             {"attention", read_attention}};

/* Reads one operation's entry. The text that names the entry in errors is made here, because each entry has a reader of
 * its own, which knows only the names of the keys inside. */
static int read_entry(const char *source, const char *operation, json_t *value, Error *err)
{
    _cleanup_free_ char *name =
        memory_format("%s: operations.%.*s", source, NAME_MAX_CHARACTERS, operation);
    const size_t word = strcspn(operation, " ");
    if (strlen(operation) > NAME_MAX_CHARACTERS)
        return error_set(err, -EINVAL, "%s...: a name of %zu characters, more than %d", name,
                         strlen(operation), NAME_MAX_CHARACTERS);
    if (!json_is_object(value))
        return error_set(err, -EINVAL, "%s: expected an object", name);
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        if (strlen(kinds[i].name) != word || memcmp(kinds[i].name, operation, word) != 0)
            continue;
        JsonReader entry = json_open(name, value, JSON_KNOWN_KEYS, err);
        kinds[i].read(&entry);
        return json_close(&entry);
    }
    return error_set(err, -EINVAL, "%s: no kind of operation is called %.*s", name, (int)word,
                     operation);
}

static int read_operations(const char *source, json_t *operations, Error *err)
{
    const char *operation;
    json_t *value;
    if (json_object_size(operations) > CUDA_PLANS_OPERATIONS_MAX)
        return error_set(err, -EINVAL, "%s: operations: %zu are more than %d", source,
                         json_object_size(operations), CUDA_PLANS_OPERATIONS_MAX);
    json_object_foreach (operations, operation, value) {
        int r = read_entry(source, operation, value, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static void read_machine(JsonReader *r, CudaMachine *machine)
{
    int64_t sms = 0, cudnn = 0, cublaslt = 0;
    (void)json_get_text(r, "architecture", JSON_REQUIRED, machine->architecture,
                        sizeof(machine->architecture));
    (void)json_get_text(r, "device", JSON_REQUIRED, machine->device, sizeof(machine->device));
    (void)json_get_int(r, "sms", JSON_REQUIRED, 1, 1 << 16, &sms);
    (void)json_get_int(r, "cudnn", JSON_REQUIRED, 0, INT32_MAX, &cudnn);
    (void)json_get_int(r, "cublaslt", JSON_REQUIRED, 0, INT32_MAX, &cublaslt);
    machine->sms = (int)sms;
    machine->cudnn = (int)cudnn;
    machine->cublaslt = (int)cublaslt;
}

int cuda_plans_parse(const char *source, const char *text, CudaPlans **ret, Error *err)
{
    const size_t n = strlen(text);
    if (n > DEVICE_PLANS_MAX)
        return error_set(err, -EINVAL, "%s: %zu bytes are more than the %d of a plan set", source,
                         n, DEVICE_PLANS_MAX);
    _cleanup_json_ json_t *root = NULL;
    int r = json_parse_bounded(source, text, n, VALUES_MAX, &root, err);
    if (r < 0)
        return r;

    _cleanup_(cuda_plans_freep) CudaPlans *plans = cuda_plans_new(NULL);
    int64_t version;
    JsonReader reader = json_open(source, root, JSON_KNOWN_KEYS, err);
    (void)json_get_int(&reader, "version", JSON_REQUIRED, CUDA_PLANS_VERSION, CUDA_PLANS_VERSION,
                       &version);
    plans->plain = false;
    if (json_get_bool(&reader, "plain", JSON_OPTIONAL, &plans->plain) && !plans->plain)
        json_refuse(&reader, "plain", "false: leave it out");
    JsonReader operations = {.object = NULL};
    if (!plans->plain) {
        (void)json_get_bool(&reader, "tuned", JSON_OPTIONAL, &plans->tuned);
        read_machine(&reader, &plans->machine);
        operations = json_get_object(&reader, "operations", JSON_REQUIRED);
    }
    r = json_close(&reader);
    if (r == 0 && operations.object) {
        r = read_operations(source, operations.object, err);
        json_decref(plans->operations);
        plans->operations = json_incref(operations.object);
    }
    if (r < 0)
        return r;
    *ret = TAKE_PTR(plans);
    return 0;
}

/* ---- fitting ---- */

static int check_library(const char *name, int planned, int opened, Error *err)
{
    if (planned == opened)
        return 0;
    return error_set(err, -EPROTO,
                     "the plans are for %s %d and this machine's is %d: install that version, or "
                     "make plans with this one (sdtrainer plan)",
                     name, planned, opened);
}

static int check_gpu(const CudaPlans *plans, const CudaMachine *machine, Error *err)
{
    const CudaMachine *theirs = &plans->machine;
    if (strcmp(theirs->architecture, machine->architecture) != 0 || theirs->sms != machine->sms)
        return error_set(err, -EINVAL,
                         "the plans are for GPU %s (%s, %d multiprocessors), and this one is %s "
                         "(%s, %d)",
                         theirs->device, theirs->architecture, theirs->sms, machine->device,
                         machine->architecture, machine->sms);
    return 0;
}

int cuda_plans_check(const CudaPlans *plans, const CudaMachine *machine, Error *err)
{
    const CudaMachine *theirs = &plans->machine;
    if (plans->plain)
        return 0;
    int r = check_gpu(plans, machine, err);
    if (r == 0)
        r = check_library("cuDNN", theirs->cudnn, machine->cudnn, err);
    return r < 0 ? r : check_library("cuBLASLt", theirs->cublaslt, machine->cublaslt, err);
}

/* ---- finding ---- */

static int read_file(const char *path, CudaPlans **ret, Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n;
    int r = file_read(path, DEVICE_PLANS_MAX, &text, &n, err);
    if (r == 0 && strlen(text) != n)
        r = error_set(err, -EINVAL, "%s: a NUL byte", path);
    return r < 0 ? r : cuda_plans_parse(path, text, ret, err);
}

static int read_own(const char *path, const CudaMachine *machine, CudaPlans **ret, Error *err)
{
    _cleanup_(cuda_plans_freep) CudaPlans *plans = NULL;
    int r = read_file(path, &plans, err);
    if (r < 0)
        return r;
    r = cuda_plans_check(plans, machine, err);
    if (r < 0)
        return error_prefix(err, r, "%s", path);
    log_info("plans of GPU %s: %s", machine->device, path);
    *ret = TAKE_PTR(plans);
    return 0;
}

static int is_plan_file(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && dot != entry->d_name && strcmp(dot, ".json") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* alphasort() would depend on the locale */
}

/* A check that a set must pass to be used. */
typedef int (*PlansCheck)(const CudaPlans *plans, const CudaMachine *machine, Error *err);

/* Returns the set of the file, for a GPU of any name, if it passes the check and is not plain; otherwise NULL. */
static CudaPlans *try_other(const char *path, const CudaMachine *machine, PlansCheck check)
{
    _cleanup_(cuda_plans_freep) CudaPlans *plans = NULL;
    Error err = ERROR_INIT;
    int r = read_file(path, &plans, &err);
    if (r == 0)
        r = check(plans, machine, &err);
    if (r < 0 || plans->plain) {
        log_debug("%s is passed over: %s", path, r < 0 ? err.text : "a plain set");
        return NULL;
    }
    return TAKE_PTR(plans);
}

/* Finds the first set, by file name, that passes the check, and its path. */
static int find_other(const char *folder, const CudaMachine *machine, PlansCheck check,
                      char path[PATH_MAX], CudaPlans **ret, Error *err)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, is_plan_file, by_name);
    CudaPlans *found = NULL;
    for (int i = 0; i < n; i++) {
        if (!found && i < FILES_MAX &&
            snprintf(path, PATH_MAX, "%s/%s", folder, entries[i]->d_name) < PATH_MAX)
            found = try_other(path, machine, check);
        free(entries[i]);
    }
    free(entries);
    if (!found)
        return error_set(err, -ENOENT, "%s has no plans for GPU %s (%s, %d multiprocessors)",
                         folder, machine->device, machine->architecture, machine->sms);
    *ret = found;
    return 0;
}

/* Writes the path of the set for the GPU's own name. */
static int own_path(const char *folder, const CudaMachine *machine, char path[PATH_MAX], Error *err)
{
    char name[sizeof(machine->device)];
    (void)snprintf(name, sizeof(name), "%s", machine->device);
    for (char *c = name; *c; c++)
        if (*c == ' ' || *c == '/')
            *c = '-';
    if (snprintf(path, PATH_MAX, "%s/%s.json", folder, name) >= PATH_MAX)
        return error_set(err, -ENOENT, "%.200s...: too long a path", folder);
    return 0;
}

int cuda_plans_look(const char *folder, const CudaMachine *machine, Error *err)
{
    char path[PATH_MAX];
    _cleanup_(cuda_plans_freep) CudaPlans *other = NULL;
    int r = own_path(folder, machine, path, err);
    if (r < 0 || access(path, F_OK) == 0)
        return r;
    return find_other(folder, machine, check_gpu, path, &other, err);
}

int cuda_plans_find(const char *folder, const CudaMachine *machine, CudaPlans **ret, Error *err)
{
    char path[PATH_MAX];
    int r = own_path(folder, machine, path, err);
    if (r == 0)
        r = read_own(path, machine, ret, err);
    if (r != -ENOENT)
        return r;
    r = find_other(folder, machine, cuda_plans_check, path, ret, err);
    if (r == 0)
        log_info("no plans for GPU %s: those of %s, which has the same architecture and as many "
                 "multiprocessors: %s",
                 machine->device, (*ret)->machine.device, path);
    return r;
}

/* ---- use ---- */

bool cuda_plans_plain(const CudaPlans *plans) { return plans->plain; }

int cuda_plans_take(const CudaPlans *plans, const char *operation, const json_t **ret, Error *err)
{
    const json_t *entry = json_object_get(plans->operations, operation);
    if (!entry)
        return error_set(err, -ENOENT,
                         "the plans of GPU %s have none for %s: sdtrainer plan --job FILE --plans "
                         "FILE makes some",
                         plans->machine.device, operation);
    *ret = entry;
    return 0;
}

void cuda_plans_give(CudaPlans *plans, const char *operation, json_t *entry)
{
    assert(!plans->plain);
    int r = json_object_set_new(plans->operations, operation, entry);
    assert(r == 0);
}

void cuda_plans_keep(CudaPlans *plans, const CudaPlans *from)
{
    assert(!plans->plain && !from->plain);
    int r = json_object_update(plans->operations, from->operations);
    assert(r == 0);
    plans->tuned &= from->tuned;
}

char *cuda_plans_text(const CudaPlans *plans)
{
    const CudaMachine *m = &plans->machine;
    _cleanup_json_ json_t *root =
        plans->plain ? json_pack("{s:i,s:b}", "version", CUDA_PLANS_VERSION, "plain", 1)
                     : json_pack("{s:i,s:s,s:s,s:i,s:i,s:i,s:O}", "version", CUDA_PLANS_VERSION,
                                 "architecture", m->architecture, "device", m->device, "sms",
                                 m->sms, "cudnn", m->cudnn, "cublaslt", m->cublaslt, "operations",
                                 plans->operations);
    assert(root);
    if (!plans->plain && !plans->tuned) {
        int r = json_object_set_new(root, "tuned", json_false());
        assert(r == 0);
    }
    return memory_given(json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS));
}
