/* SPDX-License-Identifier: Apache-2.0 */
/* device-exit.h - whose fault it is that a device does not open or does not go on.
 *
 * A GPU may be missing, too small, taken by somebody else or broken. Each costs something else: the job, a pause, or
 * the node, for this job or for all. The leader knows it only by the exit code.
 *
 * Ownership: none.
 * Units:     -errno as device_open() in kernels.h has it.
 * Errors:    none.
 * Threads:   any; device_exit_blames(): the training thread.
 *
 * Fault points: device.broken.
 */
#pragma once

#include "kernels/kernels.h"
#include "protocol/exit-code.h"

/* Returns the exit code that a device's error means: 85 for what this node lacks, 78 for what is too small for the job,
 * 75 for what others hold, EXIT_ABORTED for a program that went wrong on the device, and 80 for all else. */
ExitCode device_exit_code(int r);

/* A device that breaks fails whatever waits for it next, a collective, a save or a restore too; copies that a device
 * never ends look like a store that does not answer. true: that explains *r; *r and *err become the device's error,
 * with its exit code. */
bool device_exit_blames(Device *device, int *r, Error *err);
