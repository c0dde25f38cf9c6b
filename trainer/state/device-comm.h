/* SPDX-License-Identifier: Apache-2.0 */
/* device-comm.h - runs collectives on device memory, and measures how long a step's took.
 *
 * A device must not be idle while sums and weights cross the network. So a collective is begun and
 * finished: in between, a thread with a comm of its own (bulk.h) runs it. Without that comm the
 * collective runs when it is finished, over the comm of everything else. All ranks begin and finish the
 * same collectives in the same order.
 *
 * Data are staged through two pieces of host memory, except on a CPU, whose device memory is host memory.
 *
 * Ownership: a value of its owner, which does not move it; device_comm_close() ends the thread, aborting what
 *            it runs, and keeps the memory of a device that hangs. Borrows the rest.
 * Units:     as comm.h; usec is the microseconds that collectives took since the owner last set it to 0.
 * Errors:    those of comm.h, and for ever; those of device_await(), with device_failed; -ENOMEM, -EAGAIN.
 * Threads:   the training thread. LANE_COMM is the thread's own from begin to finish.
 */
#pragma once

#include "base/clock.h"
#include "kernels/kernels.h"
#include "trainer/comm/comm.h"

typedef enum DeviceCommKind {
    DEVICE_ALL_REDUCE,
    DEVICE_REDUCE_SCATTER,
    DEVICE_ALL_GATHER
} DeviceCommKind;

typedef struct DeviceCommCall {
    DeviceCommKind kind;
    CommType type;        /* of sums */
    size_t element_bytes; /* 1 for an all-gather */
    void *data;           /* device memory */
    size_t n, piece;      /* elements; in all, and of what a rank is dealt at a time */
    void *out;            /* of a reduce-scatter: host memory; NULL: in place */
} DeviceCommCall;

typedef struct DeviceCommThread DeviceCommThread;

/* Bytes of host memory for each of two parts, in each comm; tests set it before they open one. */
extern size_t device_comm_staging_bytes;

typedef struct DeviceComm {
    Device *device;
    Comm *comm;               /* of the training thread */
    DeviceCommThread *thread; /* NULL: there is no bulk comm */
    uint8_t *staging[2];      /* NULL on a CPU */
    bool begun;
    DeviceCommCall call;
    uint64_t usec;
    bool device_failed; /* an error was the device's, and not a peer's */
} DeviceComm;

/* bulk: NULL, or a comm that only this DeviceComm uses. */
int device_comm_open(Device *device, Comm *comm, Comm *bulk, DeviceComm *ret, Error *err);
void device_comm_close(DeviceComm *dc);

/* Begins a collective, which runs after what LANE_COMPUTE holds. data belong to it until it is finished. One at a
 * time. */
void device_comm_begin(DeviceComm *dc, const DeviceCommCall *call);
/* Finishes the collective that was begun: work that is put on LANE_COMPUTE from now on finds the result. 0 when nothing
 * was begun. */
int device_comm_finish(DeviceComm *dc, Error *err);

/* Ends a collective whose result is not wanted, before the data are written again: waits for the thread; without the
 * thread nothing has run, nor will. 0 when nothing was begun. */
int device_comm_drop(DeviceComm *dc, Error *err);

/* Returns the call of a sum. */
DeviceCommCall device_all_reduce(CommType type, void *data, size_t n);
DeviceCommCall device_reduce_scatter_dealt(CommType type, void *data, size_t n, size_t piece,
                                           void *out);
DeviceCommCall device_all_gather_dealt(void *data, size_t n_bytes, size_t piece_bytes);
/* Begins and finishes a collective. */
int device_comm_run(DeviceComm *dc, const DeviceCommCall *call, Error *err);

/* Adds the time since begin_usec; returns r. For calls of comm.h on host memory. */
static inline int device_comm_timed(DeviceComm *dc, uint64_t begin_usec, int r)
{
    dc->usec += clock_boottime_usec() - begin_usec;
    return r;
}
