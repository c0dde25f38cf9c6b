/* SPDX-License-Identifier: Apache-2.0 */
/* gloo-shim.h - Gloo's point-to-point messages behind a C interface.
 *
 * A GlooMesh has a TCP connection to each other rank. A GlooBuffer is a range of memory through which
 * messages to and from one peer pass. The sender and the receiver of a message give it the same slot
 * number.
 *
 * Ownership: *_new() gives the caller the object, *_free() accepts NULL. A buffer borrows its mesh
 *            and its memory; once gloo_buffer_free() has returned, Gloo does not touch that memory,
 *            even if a message was in progress. Buffers are freed before their mesh.
 * Units:     bytes; deadlines in CLOCK_BOOTTIME microseconds, kept to about 20 ms.
 * Errors:    -ECONNRESET: the peer closed the connection; -ETIMEDOUT: the deadline has passed;
 *            -ECANCELED: gloo_mesh_abort(); -EIO with Gloo's text. No exception leaves this interface.
 * Threads:   one, except gloo_mesh_abort(), which any thread may call. A mesh has two threads inside.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"

typedef struct GlooMesh GlooMesh;
typedef struct GlooBuffer GlooBuffer;

int gloo_mesh_new(int rank, int size, GlooMesh **ret, Error *err);
GlooMesh *gloo_mesh_free(GlooMesh *mesh);
/* Takes over fd, a connection to the rank `peer`, and owns fd even on failure. Call it once for each rank. */
int gloo_mesh_adopt(GlooMesh *mesh, int peer, int fd, Error *err);
void gloo_mesh_abort(GlooMesh *mesh);

int gloo_buffer_new(GlooMesh *mesh, int peer, void *memory, size_t n_bytes, GlooBuffer **ret,
                    Error *err);
GlooBuffer *gloo_buffer_free(GlooBuffer *buffer);
/* Queues a message, which is sent at the latest when the caller waits for it. */
int gloo_buffer_send(GlooBuffer *buffer, uint64_t slot, size_t offset, size_t n_bytes, Error *err);
int gloo_buffer_receive(GlooBuffer *buffer, uint64_t slot, size_t offset, size_t n_bytes,
                        Error *err);
/* Each of these two functions waits for one message that was queued before. */
int gloo_buffer_wait_sent(GlooBuffer *buffer, uint64_t deadline_usec, Error *err);
int gloo_buffer_wait_received(GlooBuffer *buffer, uint64_t deadline_usec, Error *err);

#ifdef __cplusplus
}
#endif
