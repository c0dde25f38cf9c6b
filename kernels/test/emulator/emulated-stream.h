/* SPDX-License-Identifier: Apache-2.0 */
/* emulated-stream.h - the emulated device's stream, which is only a clock. Nothing is queued on it, because all work is
 * done when a call returns. Fake libraries advance the clock by the time that their kernels would take.
 *
 * Ownership: the device's. Errors: none. Threads: LANE_COMPUTE's.
 * Units:     microseconds since the device was opened.
 */
#pragma once

struct CUstream_st {
    double usec;
};
