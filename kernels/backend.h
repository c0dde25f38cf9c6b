/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - the table that each kind of device implements: one function for each operation of kernels.h.
 *
 * kernels.c forwards each call to the table of its device. A backend's Device embeds struct Device as its first member;
 * its Conv, Linear, Attention and StatePlan begin with a Device pointer, through which kernels.c finds the table.
 *
 * A backend in a shared object (kernels/module.h) contains its own copy of base/, whose log and fault points are not
 * initialised. The program passes its own functions for the log and the fault points to the backend as a KernelsHost.
 *
 * Units: as kernels.h. Threads: as kernels.h.
 * Ownership: tables are static and constant; a KernelsHost outlives the last call that the process makes.
 * Errors:    as kernels.h. No C++ exception leaves a function of the table.
 */
#pragma once

#include "base/log.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The names of all operations of kernels.h that a device implements: memory, lanes and fences first, then
 * computation. */
#define KERNELS_DEVICE_OPERATIONS(X)                                                               \
    X(device_free)                                                                                 \
    X(device_memory_bytes)                                                                         \
    X(device_numerics)                                                                             \
    X(device_plans)                                                                                \
    X(device_use_plans)                                                                            \
    X(device_allocate)                                                                             \
    X(device_release)                                                                              \
    X(device_host_allocate)                                                                        \
    X(device_host_release)                                                                         \
    X(device_host_view)                                                                            \
    X(device_upload)                                                                               \
    X(device_download)                                                                             \
    X(device_copy)                                                                                 \
    X(device_clear)                                                                                \
    X(device_synchronise)                                                                          \
    X(device_send)                                                                                 \
    X(device_fetch)                                                                                \
    X(device_fence)                                                                                \
    X(device_wait)                                                                                 \
    X(device_reached)                                                                              \
    X(device_await)                                                                                \
    X(device_time_launches)                                                                        \
    X(device_timed_launches)                                                                       \
    X(device_read_launches)                                                                        \
    X(device_time_graph)
#define KERNELS_COMPUTE_OPERATIONS(X)                                                              \
    X(gradient_take)                                                                               \
    X(fingerprint)                                                                                 \
    X(count_non_finite)                                                                            \
    X(conv_new)                                                                                    \
    X(conv_free)                                                                                   \
    X(conv_packed_bytes)                                                                           \
    X(conv_workspace_bytes)                                                                        \
    X(conv_pack)                                                                                   \
    X(conv_forward)                                                                                \
    X(conv_backward_data)                                                                          \
    X(conv_gradient_form)                                                                          \
    X(conv_backward_weight)                                                                        \
    X(conv_plan_text)                                                                              \
    X(linear_new)                                                                                  \
    X(linear_free)                                                                                 \
    X(linear_packed_bytes)                                                                         \
    X(linear_workspace_bytes)                                                                      \
    X(linear_pack)                                                                                 \
    X(linear_forward)                                                                              \
    X(linear_backward_data)                                                                        \
    X(linear_gradient_form)                                                                        \
    X(linear_backward_weight)                                                                      \
    X(linear_plan_text)                                                                            \
    X(attention_new)                                                                               \
    X(attention_free)                                                                              \
    X(attention_workspace_bytes)                                                                   \
    X(attention_saved_bytes)                                                                       \
    X(attention_forward)                                                                           \
    X(attention_backward)                                                                          \
    X(attention_plan_text)                                                                         \
    X(reads_joined)                                                                                \
    X(group_norm_forward)                                                                          \
    X(group_norm_backward)                                                                         \
    X(group_norm_workspace_bytes)                                                                  \
    X(layer_norm_forward)                                                                          \
    X(layer_norm_backward)                                                                         \
    X(layer_norm_workspace_bytes)                                                                  \
    X(geglu_forward)                                                                               \
    X(geglu_backward)                                                                              \
    X(geglu_workspace_bytes)                                                                       \
    X(gelu_forward)                                                                                \
    X(embedding_forward)                                                                           \
    X(silu_forward)                                                                                \
    X(silu_backward)                                                                               \
    X(accumulate)                                                                                  \
    X(concat_forward)                                                                              \
    X(concat_backward)                                                                             \
    X(upsample_forward)                                                                            \
    X(upsample_backward)                                                                           \
    X(spatial_sum)                                                                                 \
    X(time_embedding)                                                                              \
    X(cast_from_f32)                                                                               \
    X(cast_to_f32)                                                                                 \
    X(normal_noise)                                                                                \
    X(diffuse)                                                                                     \
    X(mse_loss)                                                                                    \
    X(mse_loss_workspace_bytes)                                                                    \
    X(state_plan_new)                                                                              \
    X(state_plan_free)                                                                             \
    X(state_count)                                                                                 \
    X(state_squares)                                                                               \
    X(state_update)
#define KERNELS_OPERATIONS(X) KERNELS_DEVICE_OPERATIONS(X) KERNELS_COMPUTE_OPERATIONS(X)

typedef struct KernelsBackend {
    /* KERNELS_INTERFACE of the headers that the backend was compiled with. This must stay the first member: the program
     * reads it before it relies on the layout of the rest. */
    const char *interface;
    int (*open)(const DeviceOptions *options, Device **ret, Error *err);
#define KERNELS_MEMBER(name) __typeof__(name) *name;
    KERNELS_OPERATIONS(KERNELS_MEMBER)
#undef KERNELS_MEMBER
} KernelsBackend;

struct Device {
    const KernelsBackend *backend;
    DeviceKind kind;
    DataType type; /* the type of activations */
};

/* Functions of the program that a backend in a shared object calls. */
typedef struct KernelsHost {
    void (*log)(LogLevel level, const char *text);
    int (*fault)(const char *point);
} KernelsHost;

/* The only symbol that the shared object of a backend exports: "sdtrain_kernels_backend". */
typedef const KernelsBackend *KernelsEntry(const KernelsHost *host);

extern const KernelsBackend cpu_backend;

#ifdef __cplusplus
}
#endif
