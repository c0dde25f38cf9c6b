/* manifest_limits.h - how large a checkpoint's manifest may be, for all who read one.
 *
 * Ownership: nothing.
 * Units:     bytes of text; objects, tensors and segments are counted.
 * Errors:    none here: who reads refuses what is larger before it parses it (JSON in memory is up to
 *            25 times as large as its text), and a writer refuses a model that does not fit.
 * Threads:   any.
 *
 * 17 thousand million parameters in chunks of 2^22 are 4,096 chunks and as many objects, some weight
 * files beside them. Full arrays make 4.7 MB of text (test-checkpoint).
 */
#pragma once

enum {
    MANIFEST_BYTES_MAX = 8 << 20,
    MANIFEST_CHUNKS_MAX = 1 << 12,
    MANIFEST_OBJECTS_MAX = 1 << 13,
    MANIFEST_TENSORS_MAX = 1 << 13,
    MANIFEST_SEGMENTS_MAX = 1 << 12,
    MANIFEST_COMMITTED_MAX = 64,
};
