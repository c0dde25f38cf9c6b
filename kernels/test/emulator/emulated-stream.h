/* SPDX-License-Identifier: Apache-2.0 */
/* emulated-stream.h - the emulated device's stream: a clock. Nothing runs on it, as all is done when a call returns;
 * libraries that stand for the vendor's let it go on by the time that their kernels would take.
 *
 * Ownership: the device's.
 * Units:     microseconds since the device was opened.
 * Errors:    none.
 * Threads:   LANE_COMPUTE's.
 */
#pragma once

struct CUstream_st {
    double usec;
};
