/* SPDX-License-Identifier: Apache-2.0 */
/* device-comm.h - runs collectives on device memory, and measures how long a step's collectives take.
 *
 * A device must not be idle while sums and weights cross the network. So a collective has a begin call and a finish
 * call: in between, a thread with its own comm (bulk.h) runs it. Without that comm the collective runs in the finish
 * call, over the training thread's comm. All ranks begin and finish the same collectives in the same order.
 *
 * Data are staged through two pieces of host memory, except on a CPU, whose device memory is host memory.
 *
 * Ownership: a DeviceComm is a value that its owner does not move. device_comm_close() ends the thread, aborts its
 *            collective, and keeps the memory of a device that hangs. Everything else is borrowed.
 * Units:     as comm.h; usec is the microseconds that collectives took since the owner last set it to 0.
 * Errors:    those of comm.h, which are permanent; those of device_await(), with device_failed; -ENOMEM, -EAGAIN.
 * Threads:   the training thread. From begin to finish, only the thread uses LANE_COMM.
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
    CommType type;        /* type of the elements of a sum */
    size_t element_bytes; /* 1 for an all-gather */
    void *data;           /* device memory */
    /* n: number of all elements; piece: number of elements that a rank is dealt at a time */
    size_t n, piece;
    /* host memory for the result of a reduce-scatter; NULL: the result is written to `data` */
    void *out;
} DeviceCommCall;

typedef struct DeviceCommThread DeviceCommThread;

/* Bytes of each of the two pieces of host memory of a DeviceComm; tests set it before they open a DeviceComm. */
extern size_t device_comm_staging_bytes;

typedef struct DeviceComm {
    Device *device;
    Comm *comm;               /* the comm of the training thread */
    DeviceCommThread *thread; /* NULL: there is no bulk comm */
    uint8_t *staging[2];      /* NULL on a CPU */
    bool begun;
    DeviceCommCall call;
    uint64_t usec;
    bool device_failed; /* an error was the device's, not a peer's */
} DeviceComm;

/* bulk: NULL, or a comm that only this DeviceComm uses. */
int device_comm_open(Device *device, Comm *comm, Comm *bulk, DeviceComm *ret, Error *err);
void device_comm_close(DeviceComm *dc);

/* Begins a collective, which runs after the work that LANE_COMPUTE holds now. The data belong to the collective until
 * it is finished. Only one collective can be in progress. */
void device_comm_begin(DeviceComm *dc, const DeviceCommCall *call);
/* Finishes the collective that was begun: work that is put on LANE_COMPUTE afterwards uses the result. Returns 0 if no
 * collective was begun. */
int device_comm_finish(DeviceComm *dc, Error *err);

/* Ends a collective whose result is not wanted, before its data are written again. Waits for the thread; without the
 * thread the collective has not run, and is dropped. Returns 0 if no collective was begun. */
int device_comm_drop(DeviceComm *dc, Error *err);

/* Each of these three functions returns the call of a collective: a sum for all ranks; a sum whose pieces are dealt to
 * the ranks; a gathering of the pieces of all ranks. */
DeviceCommCall device_all_reduce(CommType type, void *data, size_t n);
DeviceCommCall device_reduce_scatter_dealt(CommType type, void *data, size_t n, size_t piece,
                                           void *out);
DeviceCommCall device_all_gather_dealt(void *data, size_t n_bytes, size_t piece_bytes);
/* Begins and finishes a collective. */
int device_comm_run(DeviceComm *dc, const DeviceCommCall *call, Error *err);

/* Adds the time since begin_usec, for calls of comm.h on host memory. Returns r. */
static inline int device_comm_timed(DeviceComm *dc, uint64_t begin_usec, int r)
{
    dc->usec += clock_boottime_usec() - begin_usec;
    return r;
}
