/* SPDX-License-Identifier: Apache-2.0 */
/* manifest-limits.h - bounds on a checkpoint's manifest, shared by its readers and its writer.
 *
 * Ownership: none.
 * Units:     *_BYTES_MAX are bytes of text; *_VALUES_MAX are JSON values (json_parse_bounded()); the others are numbers
 *            of entries.
 * Errors:    none. A reader refuses a larger text before parsing it, because parsed JSON takes up to 50 times the
 *            memory of its text. A writer refuses a model that does not fit.
 *
 * 17 billion (10^9) parameters in chunks of 2^22 give 4,096 chunks, the same number of objects, and a few weight files.
 * sd2-base has 207 chunks, 686 tensors and a header of 82 kB. With all arrays at their limits the text has 5 MB
 * (test-manifest-bounds).
 */
#pragma once

enum {
    MANIFEST_BYTES_MAX = 8 << 20,
    MANIFEST_CHUNKS_MAX = 1 << 12,
    MANIFEST_OBJECTS_MAX = 1 << 13,
    MANIFEST_TENSORS_MAX = 1 << 13,
    MANIFEST_SEGMENTS_MAX = 1 << 12,
    MANIFEST_COMMITTED_MAX = 64,
    MANIFEST_PLANS_BYTES_MAX = 4 << 20, /* size of the plans object */
    MANIFEST_VALUES_MAX = 1 << 18,
};
