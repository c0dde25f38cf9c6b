/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the shadow device's memory: guarded against writes behind its end, inaccessible to the host, and with a
 * count of the calls that use it. */
#include "kernels/test/shadow/device.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 256, GUARD = 0x5c, RELEASED = 0xfb };

void shadow_fail(const char *format, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text, sizeof(text), format, ap); /* a long text is cut */
    va_end(ap);
    (void)fprintf(stderr, "shadow device: %s\n", text); /* an error is ignored: abort() follows */
    abort();
}

/* Returns the index of the first allocation that begins above p. */
static size_t above(const ShadowDevice *device, uintptr_t p)
{
    size_t low = 0, high = device->n_memory;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if ((uintptr_t)device->memory[middle]->real > p)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Finds the allocation, of the host or of the device, that contains p or whose end is p. */
static ShadowMemory *find(const ShadowDevice *device, uintptr_t p, bool is_host)
{
    const size_t i = above(device, p);
    ShadowMemory *m = i > 0 ? device->memory[i - 1] : NULL;
    return m && m->is_host == is_host && p - (uintptr_t)m->real <= m->n_bytes ? m : NULL;
}

static int allocate(ShadowDevice *device, size_t n_bytes, bool is_host, void **ret, Error *err)
{
    void *real;
    if (n_bytes > PTRDIFF_MAX - GUARD_BYTES)
        return error_set(err, -ENOMEM, "no memory for %zu bytes", n_bytes);
    int r = cpu_backend.device_allocate(device->inner, n_bytes + GUARD_BYTES, &real, err);
    if (r < 0)
        return r;
    ShadowMemory *m = memory_new(ShadowMemory);
    *m = (ShadowMemory){.real = real, .n_bytes = n_bytes, .is_host = is_host};
    memset(m->real + n_bytes, GUARD, GUARD_BYTES);

    (void)pthread_mutex_lock(&device->lock); /* cannot fail: a plain mutex, never locked twice */
    if (device->n_memory == device->room) {
        device->room = MAX(2 * device->room, (size_t)64);
        device->memory = memory_resize(device->memory, device->room, sizeof(*device->memory));
    }
    const size_t at = above(device, (uintptr_t)real);
    memmove(device->memory + at + 1, device->memory + at,
            (device->n_memory - at) * sizeof(*device->memory));
    device->memory[at] = m;
    device->n_memory++;
    (void)pthread_mutex_unlock(&device->lock); /* cannot fail */
    *ret = is_host ? real : (void *)((uintptr_t)real + SHADOW_DISTANCE);
    return 0;
}

static void memory_end(ShadowDevice *device, ShadowMemory *m)
{
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (m->real[m->n_bytes + i] != GUARD)
            shadow_fail("%p: byte %zu behind its %zu was written", (void *)m->real, i, m->n_bytes);
    memset(m->real, RELEASED, m->n_bytes);
    cpu_backend.device_release(device->inner, m->real);
    free(m);
}

static void release(ShadowDevice *device, void *address, bool is_host)
{
    const uintptr_t p = (uintptr_t)address - (is_host ? 0 : SHADOW_DISTANCE);
    (void)pthread_mutex_lock(&device->lock); /* cannot fail */
    const size_t after = above(device, p);
    ShadowMemory *m = after > 0 ? device->memory[after - 1] : NULL;
    if (!m || (uintptr_t)m->real != p || m->is_host != is_host)
        shadow_fail("%p was released, which is no %s memory of it", address,
                    is_host ? "host" : "device");
    const bool in_use = atomic_load_explicit(&m->uses, memory_order_relaxed) > 0;
    if (!in_use) {
        device->n_memory--;
        memmove(device->memory + after - 1, device->memory + after,
                (device->n_memory - after + 1) * sizeof(*device->memory));
    }
    (void)pthread_mutex_unlock(&device->lock); /* cannot fail */

    if (in_use && atomic_load_explicit(&device->lanes.broken, memory_order_relaxed) < 0)
        return; /* device_free() releases the memory */
    if (in_use)
        shadow_fail("%p, %zu bytes, was released while queued work uses it", address, m->n_bytes);
    memory_end(device, m);
}

void shadow_memory_end(ShadowDevice *device)
{
    for (size_t i = 0; i < device->n_memory; i++) {
        ShadowMemory *m = device->memory[i];
        if (!shadow_is_lost(device))
            shadow_fail("it was closed while %p, %zu bytes, is not released",
                        (void *)((uintptr_t)m->real + (m->is_host ? 0 : SHADOW_DISTANCE)),
                        m->n_bytes);
        memory_end(device, m);
    }
    free(device->memory);
}

int shadow_device_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    return allocate(shadow_of(device), n_bytes, false, ret, err);
}

void shadow_device_release(Device *device, void *memory)
{
    release(shadow_of(device), memory, false);
}

int shadow_device_host_allocate(Device *device, size_t n_bytes, void **ret, Error *err)
{
    return allocate(shadow_of(device), n_bytes, true, ret, err);
}

void shadow_device_host_release(Device *device, void *memory)
{
    release(shadow_of(device), memory, true);
}

static void use(ShadowCall *call, atomic_int *uses)
{
    assert(call->n_uses < SHADOW_USES_MAX);
    atomic_fetch_add_explicit(uses, 1, memory_order_relaxed);
    call->uses[call->n_uses++] = uses;
}

void *shadow_call_memory(Device *base, ShadowCall *call, const void *address, size_t n_bytes)
{
    ShadowDevice *device = shadow_of(base);
    if (!address)
        return NULL;
    const uintptr_t p = (uintptr_t)address - SHADOW_DISTANCE;
    (void)pthread_mutex_lock(&device->lock); /* cannot fail */
    ShadowMemory *m = find(device, p, false);
    if (m)
        use(call, &m->uses);
    const size_t left = m ? m->n_bytes - (size_t)(p - (uintptr_t)m->real) : 0;
    (void)pthread_mutex_unlock(&device->lock); /* cannot fail */
    if (!m && device->lanes.options.takes_host)
        return (void *)(uintptr_t)address;
    if (!m)
        shadow_fail("%s was given %p, which is not device memory", call->name, address);
    if (n_bytes > left)
        shadow_fail("%s of %zu bytes at %p, where %zu are left", call->name, n_bytes, address,
                    left);
    return (void *)p;
}

bool shadow_call_host(Device *base, ShadowCall *call, const void *address)
{
    ShadowDevice *device = shadow_of(base);
    bool in_use = false;
    (void)pthread_mutex_lock(&device->lock); /* cannot fail */
    ShadowMemory *m = find(device, (uintptr_t)address, true);
    if (m) {
        in_use = atomic_load_explicit(&m->uses, memory_order_acquire) > 0;
        use(call, &m->uses);
    }
    (void)pthread_mutex_unlock(&device->lock); /* cannot fail */
    return in_use;
}

void *shadow_call_object(ShadowCall *call, void *object)
{
    ShadowObject *o = object;
    use(call, &o->uses);
    return o->inner;
}

void shadow_object_new(Device *device, void *inner, void **ret)
{
    ShadowObject *o = memory_new(ShadowObject);
    *o = (ShadowObject){.device = device, .inner = inner};
    shadow_of(device)->has_objects = true;
    *ret = o;
}

void *shadow_object_free(ShadowObject *object, const char *name)
{
    if (atomic_load_explicit(&object->uses, memory_order_relaxed) > 0)
        shadow_fail("%s of an object that queued work uses", name);
    void *inner = object->inner;
    free(object);
    return inner;
}
