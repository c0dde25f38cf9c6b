/* SPDX-License-Identifier: Apache-2.0 */
/* compute.h - the parts of a device that belong to the libraries: its plan set, and a handle of each library.
 *
 * A device that computes in fp32, finds no libraries or finds no plans is plain: this project's own kernels compute all
 * operations. On other devices an object's *_new() takes the entries of its operations from the plans, and fails if an
 * entry is missing. The module's device (device.c) and the emulated device (emulated.cc) both have a CudaCompute; the
 * code of operations gets it from cuda_compute().
 *
 * Ownership: cuda_compute_new() gives the device its CudaCompute, which borrows the device. Plans and handles are the
 *            CudaCompute's; objects borrow them.
 * Errors:    as plans.h and kernels.h. A library's call that fails while an operation runs breaks the device.
 * Threads:   LANE_COMPUTE's; cuda_device_break() any.
 */
#pragma once

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CudaLibraries;
struct CudaMachine;
struct CudaPlans;
/* cublasLtHandle_t, cudnnHandle_t and cudaStream_t, without the vendor's headers. */
struct cublasLtContext;
struct cudnnContext;
struct CUstream_st;

typedef struct CudaCompute {
    Device *device;
    struct CudaMachine *machine;
    struct CudaPlans *plans;               /* never NULL; a plain set until plans are chosen */
    const struct CudaLibraries *libraries; /* NULL: the libraries are not open */
    struct cublasLtContext *cublaslt;      /* NULL until the first cuda_matmul_new() */
    struct cudnnContext *cudnn;
    struct AttentionLibrary *attentions; /* a list of objects, one for each shape in use */
    char **names;                        /* the copies that cuda_compute_name() returns */
    size_t n_names;
    char *folder;             /* the folder of the plan sets; NULL: no folder */
    bool tune;                /* *_new() tries algorithms and adds missing entries to the plans */
    int tune_sec;             /* as in DeviceOptions */
    bool keep_installed;      /* as in DeviceOptions */
    bool chosen;              /* whether the plans have been chosen */
    int tuned;                /* how many operations tune_choose() has tuned */
    uint64_t tune_began_usec; /* when the tuning of the first operation began */
    void *held;               /* the memory that SDTRAIN_CUDA_HOLD requests */
} CudaCompute;

typedef struct CudaComputeOptions {
    const char *architecture, *device; /* as in CudaMachine */
    int sms;
    /* the folder of the plan sets; NULL: no folder, and the device is plain until it gets plans */
    const char *folder;
    const DeviceOptions *asked; /* only tune, tune_sec and keep_installed are read */
} CudaComputeOptions;

/* Work that was queued on LANE_COMPUTE. */
typedef struct CudaWork {
    const char *name;   /* the text exists as long as the device */
    double bytes, flop; /* as in DeviceLaunch */
} CudaWork;

/* SDTRAIN_CUDA_HOLD=BYTES: the device first allocates so much memory and keeps it, so that all later allocations have
 * other addresses. This serves to show that no bit depends on an address. */
int cuda_compute_new(Device *device, const CudaComputeOptions *options, CudaCompute **ret,
                     Error *err);
CudaCompute *cuda_compute_free(CudaCompute *compute);

/* device_plans() and device_use_plans(). The latter must be called before anything that needs plans. A device that
 * makes plans keeps the entries given, and makes the missing ones. In bf16 a plain device reports the plain set, so
 * that a job that began with that set continues with it. */
int cuda_compute_plans(CudaCompute *compute, char **ret);
int cuda_compute_use_plans(CudaCompute *compute, const char *text, Error *err);
/* Returns the part of device_numerics() about libraries and plans: ',"cudnn":91900,"cublaslt":130100,"plans":"<hash>"';
 * only the hash for a plain set, and "" in fp32. In a build without cuDNN's attention, the text says so before the
 * libraries. */
int cuda_compute_numerics(CudaCompute *compute, char **ret);

/* Called first by every *_new() of an operation that a library may compute. Returns 1 if the operation must use
 * `plans`, 0 if the device is plain. The first call chooses the plans, unless cuda_compute_use_plans() has set them:
 * -EINVAL and -EPROTO as in plans.h. */
int cuda_compute_begin(CudaCompute *compute, Error *err);
/* Returns cuDNN's handle, on LANE_COMPUTE's stream; the first call makes it. Call this only after cuda_compute_begin()
 * has returned 1. -EIO: cuDNN gives no handle. */
int cuda_compute_cudnn(CudaCompute *compute, struct cudnnContext **ret, Error *err);
/* Breaks the device: the library refused a call of the operation, for the reason that `status` names. */
void cuda_compute_break(CudaCompute *compute, const char *operation, const char *library,
                        const char *status);

/* Returns a copy of an operation's name that exists as long as the device. Equal names share one copy. */
const char *cuda_compute_name(CudaCompute *compute, const char *name);
/* For *_plan_text() of kernels.h: writes the library and the operation's entry, or "" if operation is NULL. */
void cuda_plan_text(const CudaCompute *compute, const char *library, const char *operation,
                    char *text, size_t size);

/* ---- different for each kind of device: device.c, emulated.cc ---- */

CudaCompute *cuda_compute(const Device *device);
/* Returns the stream of LANE_COMPUTE and makes its GPU current. The stream of an emulated device is a clock
 * (emulated-stream.h). */
struct CUstream_st *cuda_compute_stream(const Device *device);
/* Called after each kernel that was queued on LANE_COMPUTE, and after each call of a library. The report of a failure
 * names the work after the last reached fence; with SDTRAIN_CUDA_SYNC=1 this function waits, and the report names the
 * kernel that failed. */
void cuda_launched(const Device *device, const CudaWork *work);
/* cuda_clock_mark() sets mark 0 or 1 on LANE_COMPUTE. cuda_clock_usec() waits for both marks and returns the
 * microseconds between them, by the device's clock. */
void cuda_clock_mark(Device *device, int mark);
int cuda_clock_usec(Device *device, double *ret, Error *err);
/* Keeps the text as the device's failure, unless the device already has a failure. From then on the device's calls fail
 * with -EIO. */
void cuda_device_break(Device *device, const char *text);

#ifdef __cplusplus
}
#endif
