/* SPDX-License-Identifier: Apache-2.0 */
/* testing-client.h - for one test: a client, and the server of testing-s3.h that it uses.
 *
 * Ownership: world_new() gives the caller a World; the steps must outlive it.
 * Units:     bytes.
 * Errors:    if the setup fails, the test ends.
 * Threads:   the main thread; `seen` may be read only when the request is done.
 */
#pragma once

#include "base/test/testing.h"

#include "store/s3/client/client.h"
#include "store/s3/test/testing-counts.h"
#include "store/s3/test/testing-s3.h"

enum { BLOB_BYTES = 3 << 20, STEPS_SEEN = 16 };

typedef struct Steps {
    const FakeStep *steps; /* answers to the first n requests; later requests are served normally */
    size_t n;
    const char *header;          /* name of the header to record; NULL: none */
    char seen[STEPS_SEEN][1024]; /* value of `header` in each of the first requests */
} Steps;

typedef struct World {
    Steps steps;
    Fake *fake;
    S3Client *client;
    S3Options options; /* options of the client; after a change call world_open_client() */
    char endpoint[128];
} World;

/* Content of the object /bucket/blob, and destination buffer of world_get(). */
extern uint8_t world_blob[BLOB_BYTES];
extern uint8_t world_landing[BLOB_BYTES];
extern const S3Pair world_if_absent[1];

/* Sets credentials and no_proxy in the environment; for cmocka's setup of a group. */
int world_set_up(void **state);
World *world_new(const FakeStep *steps, size_t n);
void world_free(World *w);
/* Closes the client and opens one with the changed options. */
void world_open_client(World *w);

#define WORLD(...)                                                                                 \
    static const FakeStep steps[] = {__VA_ARGS__};                                                 \
    World *w = world_new(steps, ELEMENTSOF(steps))

/* Returns a get of a range of the blob, with world_landing as its buffer. */
S3Request world_get(size_t offset, size_t n_bytes);
/* Gets a range, and fails the test unless it succeeds after exactly `tries` tries. */
void world_expect_range(World *w, size_t offset, size_t n_bytes, unsigned tries);
/* Returns a put of "hello world", in two iovecs. */
S3Request world_put(const char *key, bool only_if_absent);
