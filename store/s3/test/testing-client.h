/* testing-client.h - a client and the server of testing-s3.h that it talks to, for one test.
 *
 * Ownership: world_new() gives the caller a World; the steps must outlive it.
 * Units:     bytes.
 * Errors:    what cannot be set up ends the test.
 * Threads:   the main thread; what the server saw is read when its request is over.
 */
#pragma once

#include "base/test/testing.h"

#include "store/s3/client/client.h"
#include "store/s3/test/testing-counts.h"
#include "store/s3/test/testing-s3.h"

enum { BLOB_BYTES = 3 << 20, STEPS_SEEN = 16 };

typedef struct Steps {
    const FakeStep *steps; /* of the first requests; what comes after is served */
    size_t n;
    const char *header;          /* to be noted; NULL: none */
    char seen[STEPS_SEEN][1024]; /* that header of the first requests */
} Steps;

typedef struct World {
    Steps steps;
    Fake *fake;
    S3Client *client;
    S3Options options; /* of the client; for world_open_client() to take */
    char endpoint[128];
} World;

/* Byte for byte the object /bucket/blob. */
extern uint8_t world_blob[BLOB_BYTES];
extern uint8_t world_landing[BLOB_BYTES];
extern const S3Pair world_if_absent[1];

/* Credentials in the environment, no proxy; for cmocka's set-up of the group. */
int world_set_up(void **state);
World *world_new(const FakeStep *steps, size_t n);
void world_free(World *w);
/* Anew, after the options were changed. */
void world_open_client(World *w);

#define WORLD(...)                                                                                 \
    static const FakeStep steps[] = {__VA_ARGS__};                                                 \
    World *w = world_new(steps, ELEMENTSOF(steps))

/* A range of the blob into world_landing. */
S3Request world_get(size_t offset, size_t n_bytes);
/* Asks for that range, and ends the test unless it comes whole after so many tries. */
void world_expect_range(World *w, size_t offset, size_t n_bytes, unsigned tries);
/* "hello world", in two parts. */
S3Request world_put(const char *key, bool only_if_absent);
