/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - the shadow device's memory and calls.
 *
 * Units: bytes. Threads: as kernels.h.
 * Ownership: shadow_call_new() gives the caller a call, which shadow_call_put() takes over.
 * Errors:    a breach of the contract of kernels.h aborts.
 */
#pragma once

#include "kernels/test/shadow/lane.h"

/* Addresses given to a program are this much above the real memory, where nothing is mapped. */
#define SHADOW_DISTANCE ((uintptr_t)1 << 46)

typedef struct ShadowMemory {
    char *real;
    size_t n_bytes;
    bool is_host;
    atomic_int uses; /* how many queued calls use the memory */
} ShadowMemory;

typedef struct ShadowDevice {
    Device base;
    Device *inner;         /* the CPU's device */
    char *plans;           /* the plans in use, owned; NULL: the device has no plans */
    bool has_objects;      /* an object was made on the device */
    pid_t pid;             /* the process in which the lanes' threads run */
    pthread_mutex_t lock;  /* guards memory, n_memory, room */
    ShadowMemory **memory; /* sorted by the address of `real` */
    size_t n_memory, room;
    ShadowLanes lanes;
    ShadowLane lane[N_LANES];
} ShadowDevice;

/* A Conv, Linear, Attention or StatePlan. */
typedef struct ShadowObject {
    Device *device;
    void *inner;     /* the CPU's object */
    atomic_int uses; /* how many queued calls use the object */
} ShadowObject;

static inline ShadowDevice *shadow_of(Device *device) { return (ShadowDevice *)device; }

/* Reports whether the device is broken or hung, so that work in its queues may never be done. */
static inline bool shadow_is_lost(const ShadowDevice *device)
{
    return device->lanes.broken || device->lanes.hung;
}

/* Frees the remaining memory. No lane may run any more. */
void shadow_memory_end(ShadowDevice *device);

ShadowCall *shadow_call_new(Device *device, const char *name, void (*run)(const void *arguments));
/* Returns the real memory behind an address of the device, or NULL for NULL. Marks the memory as used by the call. */
void *shadow_call_memory(Device *device, ShadowCall *call, const void *address, size_t n_bytes);
/* Registers the host memory that a copy uses; memory that does not come from device_host_allocate() is not watched.
 * Returns whether work that was queued before uses the same memory. */
bool shadow_call_host(Device *device, ShadowCall *call, const void *address);
/* Returns the CPU's object behind an object of the device, and marks the object as used by the call. */
void *shadow_call_object(ShadowCall *call, void *object);
void shadow_call_put(Device *device, Lane lane, ShadowCall *call);

void shadow_object_new(Device *device, void *inner, void **ret);
/* Frees the object and returns the CPU's object. */
void *shadow_object_free(ShadowObject *object, const char *name);

_Noreturn void shadow_fail(const char *format, ...) _printf_(1, 2);

/* The functions of the table that memory.c and device.c define. */
__typeof__(device_free) shadow_device_free;
__typeof__(device_numerics) shadow_device_numerics;
__typeof__(device_plans) shadow_device_plans;
__typeof__(device_use_plans) shadow_device_use_plans;
__typeof__(device_allocate) shadow_device_allocate;
__typeof__(device_release) shadow_device_release;
__typeof__(device_host_allocate) shadow_device_host_allocate;
__typeof__(device_host_release) shadow_device_host_release;
__typeof__(device_upload) shadow_device_upload;
__typeof__(device_download) shadow_device_download;
__typeof__(device_synchronise) shadow_device_synchronise;
__typeof__(device_send) shadow_device_send;
__typeof__(device_fetch) shadow_device_fetch;
__typeof__(device_fence) shadow_device_fence;
__typeof__(device_wait) shadow_device_wait;
__typeof__(device_reached) shadow_device_reached;
__typeof__(device_await) shadow_device_await;
__typeof__(device_time_launches) shadow_device_time_launches;
__typeof__(device_timed_launches) shadow_device_timed_launches;
__typeof__(device_read_launches) shadow_device_read_launches;
__typeof__(device_time_graph) shadow_device_time_graph;
