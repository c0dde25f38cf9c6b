/* gloo_shim.h - Gloo's point-to-point messages behind a C interface; the project's one C++ file.
 *
 * A GlooMesh has a TCP connection to each other rank. A GlooBuffer is a range of memory through
 * which messages to and from one peer pass; a message is matched by its slot, which both ends name.
 *
 * Ownership: *_new() gives the caller the object, *_free() accepts NULL. A buffer borrows its mesh
 *            and its memory, which nobody touches any more once gloo_buffer_free() has returned,
 *            whatever was still under way. Buffers go before their mesh.
 * Units:     bytes; deadlines in CLOCK_BOOTTIME microseconds, kept to about 20 ms.
 * Errors:    -ECONNRESET the peer is gone, -ETIMEDOUT the deadline passed, -ECANCELED
 *            gloo_mesh_abort(), -EIO with Gloo's text. No exception leaves this interface.
 * Threads:   one, except gloo_mesh_abort(), which may come from any. A mesh has two of its own.
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

enum { GLOO_ADDRESS_MAX = 192 };

/* Listens for each peer at `host`, an address of this machine. A connection that is not there
 * pair_timeout_usec after gloo_mesh_connect() fails. */
int gloo_mesh_new(int rank, int size, const char *host, uint64_t pair_timeout_usec, GlooMesh **ret,
                  Error *err);
GlooMesh *gloo_mesh_free(GlooMesh *mesh);
/* Where this rank listens for `peer`; the same number of bytes for each peer. */
int gloo_mesh_address(GlooMesh *mesh, int peer, char ret[GLOO_ADDRESS_MAX], size_t *ret_bytes,
                      Error *err);
/* All ranks connect to their peers in rank order. */
int gloo_mesh_connect(GlooMesh *mesh, int peer, const char *address, size_t n_bytes, Error *err);
void gloo_mesh_abort(GlooMesh *mesh);

int gloo_buffer_new(GlooMesh *mesh, int peer, void *memory, size_t n_bytes, GlooBuffer **ret,
                    Error *err);
GlooBuffer *gloo_buffer_free(GlooBuffer *buffer);
/* Messages are queued, and on their way when somebody waits. */
int gloo_buffer_send(GlooBuffer *buffer, uint64_t slot, size_t offset, size_t n_bytes, Error *err);
int gloo_buffer_receive(GlooBuffer *buffer, uint64_t slot, size_t offset, size_t n_bytes,
                        Error *err);
/* Each waits for one message that was posted before. */
int gloo_buffer_wait_sent(GlooBuffer *buffer, uint64_t deadline_usec, Error *err);
int gloo_buffer_wait_received(GlooBuffer *buffer, uint64_t deadline_usec, Error *err);

#ifdef __cplusplus
}
#endif
