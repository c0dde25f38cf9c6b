/* SPDX-License-Identifier: Apache-2.0 */
/* device-staging.c - see device-staging.h. */
#include "trainer/state/device-staging.h"

#include "trainer/state/device-patience.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 2 << 20, PIECES = 2 };

struct DeviceStaging {
    Device *device;
    char *pieces[PIECES]; /* page-locked host memory */
    Fence done[PIECES];
};

int device_staging_new(Device *device, DeviceStaging **ret, Error *err)
{
    _cleanup_(device_staging_freep) DeviceStaging *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->device = device;
    for (int i = 0; i < PIECES; i++) {
        int r = device_host_allocate(device, PIECE_BYTES, (void **)&s->pieces[i], err);
        if (r < 0)
            return r;
    }
    *ret = TAKE_PTR(s);
    return 0;
}

DeviceStaging *device_staging_free(DeviceStaging *s)
{
    if (!s)
        return NULL;
    const bool idle = device_is_idle(s->device);
    for (int i = 0; idle && i < PIECES; i++)
        device_host_release(s->device, s->pieces[i]);
    free(s);
    return NULL;
}

static int await(DeviceStaging *s, int piece, const char *what, Error *err)
{
    int r = device_await(s->device, s->done[piece], DEVICE_TIMEOUT_USEC, err);
    return r < 0 ? error_prefix(err, r, "%s", what) : 0;
}

int device_staging_upload(DeviceStaging *s, void *to, const void *from, size_t n_bytes,
                          const char *what, Error *err)
{
    int r = 0;
    for (size_t at = 0, i = 0; r == 0 && at < n_bytes; at += PIECE_BYTES, i++) {
        const int piece = (int)(i % PIECES);
        const size_t n = MIN(n_bytes - at, (size_t)PIECE_BYTES);
        r = await(s, piece, what, err);
        if (r < 0)
            break;
        memcpy(s->pieces[piece], (const char *)from + at, n);
        device_send(s->device, LANE_COMPUTE, (char *)to + at, s->pieces[piece], n);
        s->done[piece] = device_fence(s->device, LANE_COMPUTE);
    }
    for (int i = 0; i < PIECES && r == 0; i++)
        r = await(s, i, what, err);
    return r;
}

int device_staging_download(DeviceStaging *s, void *to, const void *from, size_t n_bytes,
                            const char *what, Error *err)
{
    for (size_t at = 0; at < n_bytes; at += PIECE_BYTES) {
        const size_t n = MIN(n_bytes - at, (size_t)PIECE_BYTES);
        device_fetch(s->device, LANE_COMPUTE, s->pieces[0], (const char *)from + at, n);
        s->done[0] = device_fence(s->device, LANE_COMPUTE);
        int r = await(s, 0, what, err);
        if (r < 0)
            return r;
        memcpy((char *)to + at, s->pieces[0], n);
    }
    return 0;
}
