/* SPDX-License-Identifier: Apache-2.0 */
/* compute.c - see compute.h. */
#include "kernels/cuda/module/compute.h"

#include "base/log.h"
#include "base/memory.h"
#include "kernels/cuda/plans/plans.h"

#ifdef SDTRAIN_CUDA_LIBRARIES
#include "kernels/cuda/module/libraries.h"

#include <cublasLt.h>
#include <cudnn.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- libraries ---- */

#ifdef SDTRAIN_CUDA_LIBRARIES
static int open_libraries(CudaCompute *c, Error *err)
{
    if (c->libraries)
        return 0;
    const CudaLibraries *libraries;
    int r = cuda_libraries_open(&libraries, err);
    if (r < 0)
        return r;
    c->libraries = libraries;
    c->machine->cudnn = libraries->cudnn_version;
    c->machine->cublaslt = (int)libraries->cublaslt_version;
    return 0;
}

/* Adds the libraries' folders to an error about their versions, where r is -EPROTO. */
static int report_folders(const CudaCompute *c, int r, Error *err)
{
    if (!c->libraries || r != -EPROTO)
        return r;
    const Error what = *err;
    return error_set(err, r, "%s (cuDNN in %.100s, cuBLASLt in %.100s)", what.text,
                     c->libraries->cudnn_folder, c->libraries->cublaslt_folder);
}

int cuda_compute_cudnn(CudaCompute *c, cudnnHandle_t *ret, Error *err)
{
    cudaStream_t stream = cuda_compute_stream(c->device); /* makes the device's GPU current */
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (!c->cudnn) {
        cudnnHandle_t handle = NULL;
        status = cudnnCreate(&handle);
        if (status == CUDNN_STATUS_SUCCESS) {
            c->cudnn = handle;
            status = cudnnSetStream(handle, stream);
        }
    }
    if (status != CUDNN_STATUS_SUCCESS)
        return error_set(err, -EIO, "GPU %s: cuDNN gives no handle: %s", c->machine->device,
                         cudnnGetErrorString(status));
    *ret = c->cudnn;
    return 0;
}

static void close_handles(CudaCompute *c)
{
    if (!c->cublaslt && !c->cudnn)
        return;
    (void)cuda_compute_stream(c->device); /* makes the device's GPU current */
    if (c->cublaslt)
        (void)cublasLtDestroy(c->cublaslt); /* ignored: on a broken GPU nothing is left to free */
    if (c->cudnn)
        (void)cudnnDestroy(c->cudnn); /* ignored: on a broken GPU nothing is left to free */
}
#else
static int open_libraries(CudaCompute *c, Error *err)
{
    (void)c;
    return error_set(err, -ENODEV, "this module was built without cuDNN and cuBLASLt");
}

static int report_folders(const CudaCompute *c, int r, Error *err)
{
    (void)c, (void)err;
    return r;
}

static void close_handles(CudaCompute *c) { (void)c; }
#endif

/* ---- open, free ---- */

static void set_plans(CudaCompute *c, CudaPlans *plans)
{
    (void)cuda_plans_free(c->plans);
    c->plans = plans;
}

static int hold(CudaCompute *c, Error *err)
{
    const char *value = getenv("SDTRAIN_CUDA_HOLD");
    char *end = NULL;
    if (!value)
        return 0;
    const unsigned long long n_bytes = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || n_bytes > SIZE_MAX / 2)
        return error_set(err, -EINVAL, "SDTRAIN_CUDA_HOLD=%.40s is not a number of bytes", value);
    log_warning("GPU %s: %llu bytes of its memory are held (SDTRAIN_CUDA_HOLD)", c->machine->device,
                n_bytes);
    return device_allocate(c->device, (size_t)n_bytes, &c->held, err);
}

int cuda_compute_new(Device *device, const CudaComputeOptions *options, CudaCompute **ret,
                     Error *err)
{
    CudaCompute *c = memory_new(CudaCompute);
    c->device = device;
    c->machine = memory_new(CudaMachine);
    c->machine->sms = options->sms;
    (void)snprintf(c->machine->architecture, sizeof(c->machine->architecture), "%s",
                   options->architecture);
    (void)snprintf(c->machine->device, sizeof(c->machine->device), "%s", options->device);
    c->plans = cuda_plans_new(NULL);
    c->folder = options->folder && device->type == DATA_BF16 ? memory_text(options->folder) : NULL;
    c->tune = options->asked->tune;
    c->tune_sec = options->asked->tune_sec;
    c->keep_installed = options->asked->keep_installed;
    int r = hold(c, err);
    if (r == 0 && c->tune)
        r = device->type == DATA_BF16
                ? open_libraries(c, err)
                : error_set(err, -EINVAL, "only what computes in bf16 has plans");
    if (r < 0) {
        (void)cuda_compute_free(c);
        return r;
    }
    if (c->tune)
        set_plans(c, cuda_plans_new(c->machine));
    *ret = c;
    return 0;
}

CudaCompute *cuda_compute_free(CudaCompute *c)
{
    if (!c)
        return NULL;
    close_handles(c);
    device_release(c->device, c->held);
    (void)cuda_plans_free(c->plans);
    for (size_t i = 0; i < c->n_names; i++)
        free(c->names[i]);
    free(c->names);
    free(c->machine);
    free(c->folder);
    free(c);
    return NULL;
}

/* ---- plans ---- */

/* A device that tunes starts with the plans of the folder. If none fit, the device makes all plans. */
static void keep_installed(CudaCompute *c)
{
    Error why = ERROR_INIT;
    _cleanup_(cuda_plans_freep) CudaPlans *plans = NULL;
    int r = cuda_plans_find(c->folder, c->machine, &plans, &why);
    if (r == 0 && !cuda_plans_plain(plans))
        cuda_plans_keep(c->plans, plans);
    else if (r == 0 || r == -ENOENT)
        log_info("no plans are installed for GPU %s: all are made", c->machine->device);
    else
        log_warning("the installed plans are not used, all are made: %s", why.text);
}

/* Uses the folder's plans, if the libraries for them are found. Missing plans or libraries leave the device plain;
 * plans that do not fit are an error. If no set may fit, the libraries are not even opened, so that defective
 * libraries do no harm. The choice is made as late as possible, because a checkpoint's plans take precedence over the
 * folder's. */
static int choose(CudaCompute *c, Error *err)
{
    Error why = ERROR_INIT;
    CudaPlans *plans;
    if (c->tune || c->chosen || !c->folder) {
        if (c->tune && c->keep_installed && !c->chosen && c->folder)
            keep_installed(c);
        c->chosen = true;
        return 0;
    }
    int r = cuda_plans_look(c->folder, c->machine, &why);
    if (r == 0)
        r = open_libraries(c, &why);
    if (r == 0) {
        r = cuda_plans_find(c->folder, c->machine, &plans, &why);
        r = report_folders(c, r, &why);
    }
    if (r < 0 && r != -ENODEV && r != -ENOENT)
        return error_set(err, r, "%s", why.text);
    if (r == 0)
        set_plans(c, plans);
    else
        log_warning("GPU %s computes only with its own kernels, which are slow: %s",
                    c->machine->device, why.text);
    c->chosen = true;
    return 0;
}

int cuda_compute_begin(CudaCompute *c, Error *err)
{
    int r = choose(c, err);
    return r < 0 ? r : !cuda_plans_plain(c->plans);
}

int cuda_compute_plans(CudaCompute *c, char **ret)
{
    Error err = ERROR_INIT;
    if (c->device->type != DATA_BF16)
        return -ENOENT;
    int r = choose(c, &err);
    if (r < 0) {
        log_error("%s", err.text);
        return r;
    }
    *ret = cuda_plans_text(c->plans);
    return 0;
}

int cuda_compute_use_plans(CudaCompute *c, const char *text, Error *err)
{
    _cleanup_(cuda_plans_freep) CudaPlans *plans = NULL;
    assert(!c->chosen);
    if (c->device->type != DATA_BF16)
        return error_set(err, -ENOENT, "GPU %s has no plans: it computes in fp32 here",
                         c->machine->device);
    int r = cuda_plans_parse("plans", text, &plans, err);
    if (r == 0 && !cuda_plans_plain(plans))
        r = open_libraries(c, err);
    if (r == 0)
        r = report_folders(c, cuda_plans_check(plans, c->machine, err), err);
    if (r == 0 && c->tune && cuda_plans_plain(plans))
        r = error_set(err, -EINVAL, "a plain set has no plans that could be kept");
    if (r < 0)
        return r;
    if (c->tune)
        cuda_plans_keep(c->plans, plans); /* the missing plans are made */
    else
        set_plans(c, TAKE_PTR(plans));
    c->chosen = true;
    return 0;
}

int cuda_compute_numerics(CudaCompute *c, char **ret)
{
#ifdef SDTRAIN_CUDA_ATTENTION
    static const char attention[] = "";
#else
    static const char attention[] = ",\"attention\":\"plain\""; /* for any set that is not plain */
#endif
    char word[HASH_TEXT_BYTES];
    _cleanup_free_ char *text = NULL;
    int r = cuda_compute_plans(c, &text);
    if (r < 0 && r != -ENOENT)
        return r;
    const char *hash = r == -ENOENT ? "" : hash_format(hash_bytes(text, strlen(text)), word);
    if (r == -ENOENT)
        *ret = memory_text("");
    else if (cuda_plans_plain(c->plans))
        *ret = memory_format(",\"plans\":\"%s\"", hash);
    else
        *ret = memory_format("%s,\"cudnn\":%d,\"cublaslt\":%d,\"plans\":\"%s\"", attention,
                             c->machine->cudnn, c->machine->cublaslt, hash);
    return 0;
}

const char *cuda_compute_name(CudaCompute *c, const char *name)
{
    for (size_t i = 0; i < c->n_names; i++)
        if (strcmp(c->names[i], name) == 0)
            return c->names[i];
    c->names = memory_given(realloc(c->names, (c->n_names + 1) * sizeof(*c->names)));
    c->names[c->n_names] = memory_text(name);
    return c->names[c->n_names++];
}

void cuda_compute_break(CudaCompute *c, const char *operation, const char *library,
                        const char *status)
{
    _cleanup_free_ char *text =
        memory_format("GPU %s: %s: %s: %s", c->machine->device, operation, library, status);
    cuda_device_break(c->device, text);
}

void cuda_plan_text(const CudaCompute *c, const char *library, const char *operation, char *text,
                    size_t size)
{
    const json_t *entry;
    Error ignored = ERROR_INIT; /* cannot happen: an object that runs has its entry */
    (void)snprintf(text, size, "%s", "");
    if (!operation || cuda_plans_take(c->plans, operation, &entry, &ignored) < 0)
        return;
    _cleanup_free_ char *json = memory_given(json_dumps(entry, JSON_COMPACT | JSON_SORT_KEYS));
    (void)snprintf(text, size, "%s, by the plan of %s: %s", library, operation, json);
}
