/* SPDX-License-Identifier: Apache-2.0 */
/* compute.h - what a device has of the libraries: its plan set, and a handle of each library.
 *
 * A device that computes in fp32, finds no libraries or finds no plans is plain: all operations are this project's own
 * kernels. On others an object's *_new() takes its operations' entries from the plans, and fails where there is none.
 * The module's device (device.c) and the emulated one (emulated.cc) both hold a CudaCompute; code of operations finds
 * it by cuda_compute().
 *
 * Ownership: cuda_compute_new() gives the device its CudaCompute, which borrows the device. Plans and handles are the
 *            CudaCompute's; objects borrow them.
 * Units:     none.
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
    struct CudaPlans *plans;               /* never NULL; plain until they are chosen */
    const struct CudaLibraries *libraries; /* NULL: not opened */
    struct cublasLtContext *cublaslt;      /* NULL until cuda_compute_cublaslt() */
    struct cudnnContext *cudnn;
    struct AttentionLibrary *attentions; /* one for each shape that is in use */
    char **names;                        /* cuda_compute_name() */
    size_t n_names;
    char *folder;        /* where plans are looked for; NULL: nowhere */
    bool tune;           /* *_new() tries algorithms and gives the plans the entry that they lack */
    int tune_sec;        /* as DeviceOptions has it */
    bool keep_installed; /* as DeviceOptions has it */
    bool chosen;         /* which plans it uses */
    int tuned;           /* operations, by tune_choose(); the first of them at: */
    uint64_t tune_began_usec;
    void *held; /* SDTRAIN_CUDA_HOLD */
} CudaCompute;

typedef struct CudaComputeOptions {
    const char *architecture, *device; /* as CudaMachine has them */
    int sms;
    const char
        *folder; /* of plan sets; NULL: none, and the device is plain until it is told plans */
    const DeviceOptions *asked; /* for tune, tune_sec and keep_installed */
} CudaComputeOptions;

/* Work that was put on LANE_COMPUTE. */
typedef struct CudaWork {
    const char *name;   /* lives as long as the device */
    double bytes, flop; /* as DeviceLaunch has them */
} CudaWork;

/* SDTRAIN_CUDA_HOLD=BYTES: so much memory of the device is taken first and held, so that all that comes after it lies
 * elsewhere. For who shows that no bit depends on an address. */
int cuda_compute_new(Device *device, const CudaComputeOptions *options, CudaCompute **ret,
                     Error *err);
CudaCompute *cuda_compute_free(CudaCompute *compute);

/* device_plans() and device_use_plans(). The latter comes before anything that asks for plans; a device that makes some
 * keeps those entries, and makes what they lack. In bf16 a plain device tells the plain set, so that a job that began
 * with it goes on with it. */
int cuda_compute_plans(CudaCompute *compute, char **ret);
int cuda_compute_use_plans(CudaCompute *compute, const char *text, Error *err);
/* Returns the part of device_numerics() about libraries and plans: ',"cudnn":91900,"cublaslt":130100,"plans":"<hash>"';
 * only the hash for a plain set, "" in fp32. A build without cuDNN's attention reports so before the libraries. */
int cuda_compute_numerics(CudaCompute *compute, char **ret);

/* Asked first by every *_new() of an operation that a library may do. 1: by `plans`; 0: the device is plain. The first
 * call chooses the plans if nobody told any: -EINVAL and -EPROTO as plans.h has them. */
int cuda_compute_begin(CudaCompute *compute, Error *err);
/* cuDNN's handle, on LANE_COMPUTE's stream; the first call makes it. Only after cuda_compute_begin() has given 1. -EIO:
 * cuDNN makes none. */
int cuda_compute_cudnn(CudaCompute *compute, struct cudnnContext **ret, Error *err);
/* Breaks the device: the library refused a call of the operation, for the reason that `status` names. */
void cuda_compute_break(CudaCompute *compute, const char *operation, const char *library,
                        const char *status);

/* A copy of an operation's name that lives as long as the device; equal names are one. */
const char *cuda_compute_name(CudaCompute *compute, const char *name);
/* For *_plan_text() of kernels.h: the library and the operation's entry. operation NULL: "". */
void cuda_plan_text(const CudaCompute *compute, const char *library, const char *operation,
                    char *text, size_t size);

/* ---- of each kind of device: device.c, emulated.cc ---- */

CudaCompute *cuda_compute(const Device *device);
/* The stream of LANE_COMPUTE, whose GPU is made current; an emulated device's is a clock (emulated-stream.h). */
struct CUstream_st *cuda_compute_stream(const Device *device);
/* Called after each kernel that was put on LANE_COMPUTE, and after each call of a library. A failure is told of what
 * came after the last fence; with SDTRAIN_CUDA_SYNC=1 this waits, and tells of the one that failed. */
void cuda_launched(const Device *device, const CudaWork *work);
/* Marks 0 and 1 on LANE_COMPUTE, and the microseconds between the two, once both are reached, by the device's clock. */
void cuda_clock_mark(Device *device, int mark);
int cuda_clock_usec(Device *device, double *ret, Error *err);
/* Keeps the text as the device's failure, unless it has one: -EIO from then on. */
void cuda_device_break(Device *device, const char *text);

#ifdef __cplusplus
}
#endif
