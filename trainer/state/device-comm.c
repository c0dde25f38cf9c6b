/* SPDX-License-Identifier: Apache-2.0 */
/* device-comm.c - see device-comm.h. */

#include "trainer/state/device-comm.h"

int device_comm_open(Device *device, Comm *comm, size_t max_bytes, DeviceComm *ret, Error *err)
{
    *ret = (DeviceComm){.device = device, .comm = comm};
    if (device_kind(device) == DEVICE_CPU)
        return 0;
    ret->staging = malloc(max_bytes);
    return ret->staging ? 0 : error_set(err, -ENOMEM, "no memory to stage %zu bytes", max_bytes);
}

void device_comm_close(DeviceComm *dc)
{
    free(dc->staging);
    dc->staging = NULL;
}

static int stage_in(DeviceComm *dc, void *data, size_t n_bytes, void **ret, Error *err)
{
    *ret = data;
    if (!dc->staging)
        return 0;
    *ret = dc->staging;
    device_download(dc->device, dc->staging, data, n_bytes);
    return device_synchronise(dc->device, err);
}

static void stage_out(DeviceComm *dc, void *data, size_t n_bytes)
{
    if (dc->staging)
        device_upload(dc->device, data, dc->staging, n_bytes);
}

int device_comm_all_reduce(DeviceComm *dc, CommType type, void *data, size_t n, Error *err)
{
    size_t n_bytes = n * comm_type_bytes(type);
    void *host;
    int r = stage_in(dc, data, n_bytes, &host, err);
    if (r < 0)
        return r;
    uint64_t t = clock_boottime_usec();
    r = device_comm_timed(dc, t, comm_all_reduce(dc->comm, type, COMM_SUM, host, n, err));
    stage_out(dc, data, n_bytes);
    return r;
}

int device_comm_reduce_scatter_dealt(DeviceComm *dc, CommType type, void *data, size_t n,
                                     size_t piece, void *out, Error *err)
{
    size_t n_bytes = n * comm_type_bytes(type);
    void *host;
    int r = stage_in(dc, data, n_bytes, &host, err);
    if (r < 0)
        return r;
    uint64_t t = clock_boottime_usec();
    r = device_comm_timed(dc, t,
                          comm_reduce_scatter_dealt(dc->comm, type, host, n, piece, out, err));
    if (!out)
        stage_out(dc, data, n_bytes);
    return r;
}

int device_comm_all_gather_dealt(DeviceComm *dc, void *data, size_t n_bytes, size_t piece_bytes,
                                 Error *err)
{
    void *host;
    int r = stage_in(dc, data, n_bytes, &host, err);
    if (r < 0)
        return r;
    uint64_t t = clock_boottime_usec();
    r = device_comm_timed(dc, t, comm_all_gather_dealt(dc->comm, host, n_bytes, piece_bytes, err));
    stage_out(dc, data, n_bytes);
    return r;
}
