/* SPDX-License-Identifier: Apache-2.0 */
/* testing-plans.h - the committed plan sets, and records of their GPUs, for tests that plan without a GPU.
 *
 * SDTRAIN_PLANS=write makes a test write its entries of the plan sets again; entries of other operations stay.
 *
 * Ownership: functions that return a pointer give the caller the object.
 * Units:     sides in pixels of the latents.
 * Errors:    a failed assertion ends the program.
 * Threads:   any.
 */
#pragma once

#include "base/file.h"
#include "base/json/json.h"
#include "base/test/testing.h"
#include "kernels/cuda/module/libraries.h"
#include "kernels/cuda/plans/plans.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct PlanGpu {
    const char *record, *plans; /* the paths of the GPU's record and of its plan set */
} PlanGpu;

enum { N_GPUS = 2, PLAN_FILE_MAX = 1 << 20 };

static const PlanGpu plan_gpus[N_GPUS] = {
    {"tests/golden/gpu/h100.json", "kernels/cuda/plans/NVIDIA-H100-80GB-HBM3.json"},
    {"tests/golden/gpu/h200.json", "kernels/cuda/plans/NVIDIA-H200.json"},
};

/* Sizes of sd2-base for pictures of 512^2 and 256^2. */
static const struct {
    int side, grain;
} plan_sizes[] = {{64, 32}, {32, 128}};

/* The batches that an encoder processes at once: pictures of 256^2 and 512^2. Sides are in pixels of the pictures. */
static const struct {
    int side, batch;
} encoder_sizes[] = {{256, 32}, {512, 8}};

static inline const char *in_source(const char *path, char *text, size_t size)
{
    const char *source = getenv("SDTRAIN_SOURCE");
    assert_non_null(source);
    (void)snprintf(text, size, "%s/%s", source, path);
    return text;
}

/* Returns the operations of the plan set that ops/gpu has copied from the GPU, or NULL. */
static inline json_t *measured_operations(const PlanGpu *gpu)
{
    char path[512], name[128];
    json_t *plans = NULL;
    (void)snprintf(name, sizeof(name), "ops/gpu-results/plans/%s", strrchr(gpu->plans, '/') + 1);
    if (json_read_file(in_source(name, path, sizeof(path)), PLAN_FILE_MAX, &plans, NULL) < 0)
        return NULL;
    json_t *operations = json_incref(json_object_get(plans, "operations"));
    json_decref(plans);
    return operations;
}

static inline char *gpu_record(const PlanGpu *gpu)
{
    char path[512];
    Error err = ERROR_INIT;
    char *text = NULL;
    size_t n;
    if (file_read(in_source(gpu->record, path, sizeof(path)), PLAN_FILE_MAX, &text, &n, &err) < 0)
        fail_msg("%s", err.text);
    return text;
}

/* Reads the plan set from its file. Returns an empty set if there is no file and SDTRAIN_PLANS is set. */
static inline json_t *plans_of(const PlanGpu *gpu)
{
    char path[512];
    Error err = ERROR_INIT;
    json_t *plans = NULL;
    int r = json_read_file(in_source(gpu->plans, path, sizeof(path)), PLAN_FILE_MAX, &plans, &err);
    if (r == -ENOENT && getenv("SDTRAIN_PLANS"))
        return json_pack("{s:{}}", "operations");
    if (r < 0)
        fail_msg("%s", err.text);
    _cleanup_free_ char *text = json_dumps(plans, 0);
    _cleanup_(cuda_plans_freep) CudaPlans *read = NULL;
    if (cuda_plans_parse(gpu->plans, text, &read, &err) < 0) /* reads the set as a device does */
        fail_msg("%s", err.text);
    return plans;
}

/* ---- writing ---- */

/* Writes one operation per line, so that a change of one operation is a change of one line. */
static inline void write_plans(const PlanGpu *gpu, json_t *root, json_t *operations)
{
    char path[512];
    const char *key;
    json_t *value;
    size_t left = json_object_size(operations);
    FILE *f = fopen(in_source(gpu->plans, path, sizeof(path)), "we");
    assert_non_null(f);
    (void)fputs("{", f); /* fclose() reports a failed write */
    json_object_foreach (root, key, value) {
        if (strcmp(key, "operations") == 0)
            continue;
        _cleanup_free_ char *text = json_dumps(value, JSON_ENCODE_ANY);
        (void)fprintf(f, "\"%s\":%s,\n", key, text);
    }
    (void)fputs("\"operations\":{\n", f);
    json_object_foreach (operations, key, value) {
        _cleanup_free_ char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS);
        (void)fprintf(f, "\"%s\":%s%s\n", key, text, --left > 0 ? "," : "");
    }
    (void)fputs("}}\n", f);
    assert_int_equal(fclose(f), 0);
}

static inline int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static inline json_t *sorted(json_t *object)
{
    const char *key;
    json_t *value, *to = json_object();
    size_t n = 0;
    _cleanup_free_ const char **keys = calloc(json_object_size(object) + 1, sizeof(*keys));
    assert_non_null(keys);
    json_object_foreach (object, key, value)
        keys[n++] = key;
    qsort(keys, n, sizeof(*keys), by_name);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(json_object_set(to, keys[i], json_object_get(object, keys[i])), 0);
    return to;
}

/* Writes the new entries to the set's file, in place of all entries whose name begins with `kind`. */
static inline void plans_rewrite(const PlanGpu *gpu, const char *kind, json_t *made,
                                 const CudaLibraries *libraries)
{
    const char *key;
    json_t *value;
    char path[512];
    Error err = ERROR_INIT;
    _cleanup_json_ json_t *plans = plans_of(gpu), *operations = json_copy(made), *record = NULL;
    json_object_foreach (json_object_get(plans, "operations"), key, value)
        if (strncmp(key, kind, strlen(kind)) != 0)
            assert_int_equal(json_object_set(operations, key, value), 0);
    _cleanup_json_ json_t *in_order = sorted(operations);
    assert_int_equal(json_read_file(in_source(gpu->record, path, sizeof(path)), PLAN_FILE_MAX,
                                    &record, &err),
                     0);
    _cleanup_json_ json_t *root =
        json_pack("{s:s,s:i,s:i,s:O,s:O,s:b,s:i}", "architecture", "sm_90", "cublaslt",
                  (int)libraries->cublaslt_version, "cudnn", libraries->cudnn_version, "device",
                  json_object_get(record, "deviceName"), "sms",
                  json_object_get(record, "multiProcessorCount"), "tuned", 0, "version", 1);
    assert_non_null(root);
    assert_true(!json_object_get(plans, "cublaslt") ||
                json_equal(json_object_get(plans, "cublaslt"), json_object_get(root, "cublaslt")));
    write_plans(gpu, root, in_order);
}

/* Reports whether the sets are of another version of cuDNN. Other versions have other engines, so the sets cannot be
 * checked with this cuDNN. */
static inline bool plans_are_of_another_version(const CudaLibraries *libraries)
{
    for (size_t i = 0; i < N_GPUS; i++) {
        _cleanup_json_ json_t *plans = plans_of(&plan_gpus[i]);
        const int64_t of_plans = json_integer_value(json_object_get(plans, "cudnn"));
        if (of_plans != libraries->cudnn_version && !getenv("SDTRAIN_PLANS")) {
            print_message("skipped: %s is of cuDNN %" PRId64 ", and this is %d\n",
                          plan_gpus[i].plans, of_plans, libraries->cudnn_version);
            return true;
        }
    }
    return false;
}
