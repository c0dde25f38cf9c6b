/* SPDX-License-Identifier: Apache-2.0 */
/* device-staging.h - copies between any memory of the host and the device, with the deadline of a fence.
 *
 * device_upload() and device_download() wait without a limit, and a device may hang. The functions below copy pieces
 * through page-locked memory, so that the host waits only for fences. The copies run after the work that LANE_COMPUTE
 * holds, and are done when the functions return.
 *
 * Units: bytes. Threads: LANE_COMPUTE's.
 * Ownership: device_staging_new() gives the caller the object; it borrows the Device. Memory that a device that hangs
 *            may still use is kept until the process ends.
 * Errors:    -ENOMEM; -ETIMEDOUT: the device did not reach a fence in DEVICE_TIMEOUT_USEC; those of the device.
 */
#pragma once

#include "kernels/kernels.h"

typedef struct DeviceStaging DeviceStaging;

int device_staging_new(Device *device, DeviceStaging **ret, Error *err);
DeviceStaging *device_staging_free(DeviceStaging *staging);
DEFINE_CLEANUP(DeviceStaging, device_staging_free)
/* what: names the copy in the error's text. */
int device_staging_upload(DeviceStaging *staging, void *to, const void *from, size_t n_bytes,
                          const char *what, Error *err);
int device_staging_download(DeviceStaging *staging, void *to, const void *from, size_t n_bytes,
                            const char *what, Error *err);
