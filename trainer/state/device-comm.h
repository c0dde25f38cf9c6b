/* SPDX-License-Identifier: Apache-2.0 */
/* device-comm.h - runs collectives on device memory, and measures how long a step's took.
 *
 * Data are staged through host memory, except on a CPU, whose device memory is host memory.
 *
 * Ownership: a value of its owner; device_comm_close() frees the staging buffer. Borrows the rest.
 * Units:     as comm.h; usec is the microseconds spent since the owner last set it to 0.
 * Errors:    those of comm.h; -ENOMEM.
 * Threads:   the training thread.
 */
#pragma once

#include "base/clock.h"
#include "kernels/kernels.h"
#include "trainer/comm/comm.h"

typedef struct DeviceComm {
    Device *device;
    Comm *comm;
    void *staging; /* NULL on a CPU */
    uint64_t usec;
} DeviceComm;

/* max_bytes: size of the largest buffer that a call will be given. */
int device_comm_open(Device *device, Comm *comm, size_t max_bytes, DeviceComm *ret, Error *err);
void device_comm_close(DeviceComm *dc);

int device_comm_all_reduce(DeviceComm *dc, CommType type, void *data, size_t n, Error *err);
/* out is host memory, or NULL: in place. */
int device_comm_reduce_scatter_dealt(DeviceComm *dc, CommType type, void *data, size_t n,
                                     size_t piece, void *out, Error *err);
int device_comm_all_gather_dealt(DeviceComm *dc, void *data, size_t n_bytes, size_t piece_bytes,
                                 Error *err);

/* Adds the time since begin_usec; returns r. For calls of comm.h on host memory. */
static inline int device_comm_timed(DeviceComm *dc, uint64_t begin_usec, int r)
{
    dc->usec += clock_boottime_usec() - begin_usec;
    return r;
}
