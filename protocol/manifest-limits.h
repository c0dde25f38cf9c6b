/* SPDX-License-Identifier: Apache-2.0 */
/* manifest-limits.h - how large a checkpoint's manifest may be, for all who read one.
 *
 * Ownership: nothing.
 * Units:     bytes of text; values are JSON's (json_parse_bounded()); the rest is counted.
 * Errors:    none here: who reads refuses what is larger before it parses it (JSON in memory is up to
 *            50 times as large as its text), and a writer refuses a model that does not fit.
 * Threads:   any.
 *
 * 17 thousand million parameters in chunks of 2^22 are 4,096 chunks and as many objects, some weight
 * files beside them; sd2-base has 207 chunks, 686 tensors and a header of 82 kB. Full arrays make 5 MB of
 * text (test-manifest-bounds).
 */
#pragma once

enum {
    MANIFEST_BYTES_MAX = 8 << 20,
    MANIFEST_CHUNKS_MAX = 1 << 12,
    MANIFEST_OBJECTS_MAX = 1 << 13,
    MANIFEST_TENSORS_MAX = 1 << 13,
    MANIFEST_SEGMENTS_MAX = 1 << 12,
    MANIFEST_COMMITTED_MAX = 64,
    MANIFEST_VALUES_MAX = 1 << 18,
    SAFETENSORS_HEADER_MAX = 4 << 20, /* the format allows 100 MB */
    SAFETENSORS_TENSORS_MAX = MANIFEST_TENSORS_MAX,
    SAFETENSORS_VALUES_MAX = 1 << 17,
};
