/* SPDX-License-Identifier: Apache-2.0 */
/* device-exit.h - chooses the exit code for a device that does not open, or that fails later.
 *
 * A GPU may be missing, too small, in use by others or broken. Each case has another consequence: the job ends, it
 * pauses, or the node is not used, by this job or by any job. The leader knows the case only from the exit code.
 *
 * Ownership: none. Errors: none.
 * Units:     -errno as device_open() in kernels.h returns it.
 * Threads:   any; device_exit_blames(): the training thread.
 *
 * Fault points: device.broken.
 */
#pragma once

#include "kernels/kernels.h"
#include "protocol/exit-code.h"

/* Returns the exit code for a device's error: 85 if this node lacks something, 78 if something is too small for the
 * job, 75 if other processes hold the device, EXIT_ABORTED if the program went wrong on the device, and 80
 * otherwise. */
ExitCode device_exit_code(int r);

/* If a device breaks, whatever waits for it next fails: even a collective, a save or a restore. Copies that a device
 * never ends look like a store that does not answer. Returns true if the device explains *r: then *r and *err become
 * the device's error, with its exit code. */
bool device_exit_blames(Device *device, int *r, Error *err);
