/* SPDX-License-Identifier: Apache-2.0 */
/* raw-stream.h - reads an object from its start to its end in windows of 4 MiB; the next window is read while a window
 * is used.
 *
 * Ownership: raw_stream_new() gives the caller a RawStream and borrows the Store; raw_stream_free() accepts NULL.
 * Units:     bytes. The two windows take 8 MiB.
 * Errors:    the store's, except those that store-wait.h waits for.
 */
#pragma once

#include "prep/raw/store-wait.h"

typedef struct RawStream RawStream;

int raw_stream_new(Store *store, const char *key, uint64_t n_bytes, RawStream **ret, Error *err);
RawStream *raw_stream_free(RawStream *stream);
DEFINE_CLEANUP(RawStream, raw_stream_free)
uint64_t raw_stream_bytes(const RawStream *stream);
/* Reads n_bytes at offset; the range must lie in the object. Reading an earlier offset again is possible, but slow. */
int raw_stream_read(RawStream *stream, uint64_t offset, void *buffer, size_t n_bytes, Error *err);
