/* SPDX-License-Identifier: Apache-2.0 */
/* testing-client.c - see testing-client.h. */
#include "store/s3/test/testing-client.h"

#include <string.h>

uint8_t world_blob[BLOB_BYTES], world_landing[BLOB_BYTES];
const S3Pair world_if_absent[1] = {{"If-None-Match", "*"}};

static FakeStep script(void *context, const FakeRequest *request)
{
    Steps *steps = context;
    size_t i = request->number - 1;
    if (i < STEPS_SEEN && steps->header)
        (void)fake_header(request, steps->header, steps->seen[i], sizeof(steps->seen[i]));
    return i < steps->n ? steps->steps[i] : (FakeStep){0};
}

void world_open_client(World *w)
{
    Error err = ERROR_INIT;
    w->client = s3_client_close(w->client);
    (void)snprintf(w->endpoint, sizeof(w->endpoint), "http://127.0.0.1:%d", fake_port(w->fake));
    w->options.endpoint = w->endpoint;
    if (s3_client_open(&w->options, &w->client, &err) < 0)
        fail_msg("%s", err.text);
}

World *world_new(const FakeStep *steps, size_t n)
{
    World *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    w->steps = (Steps){.steps = steps, .n = n};
    w->fake = fake_start(script, &w->steps);
    fake_put(w->fake, "/bucket/blob", world_blob, sizeof(world_blob));
    w->options = (S3Options){
        .region = "us-east-1",
        .profile = "default",
        .part_bytes = 8 << 20,
        .connections = 8,
        .memory_bytes = 64 << 20,
        .deadline_usec = 60 * USEC_PER_SEC,
        .stall_usec = 20 * USEC_PER_SEC,
        .sign_payload = S3_OFF,
        .checksum = S3_OFF,
    };
    world_open_client(w);
    return w;
}

void world_free(World *w)
{
    w->client = s3_client_close(w->client);
    fake_stop(w->fake);
    free(w);
}

S3Request world_get(size_t offset, size_t n_bytes)
{
    memset(world_landing, 0, sizeof(world_landing));
    return (S3Request){.method = S3_GET,
                       .bucket = "bucket",
                       .key = "blob",
                       .buffer = world_landing,
                       .ranged = true,
                       .offset = offset,
                       .n_bytes = n_bytes};
}

void world_expect_range(World *w, size_t offset, size_t n_bytes, unsigned tries)
{
    Error err = ERROR_INIT;
    S3Request request = world_get(offset, n_bytes);
    if (s3_do(w->client, &request, &err) < 0)
        fail_msg("%s", err.text);
    assert_memory_equal(world_landing, world_blob + offset, n_bytes);
    assert_int_equal(request.tries, tries);
}

S3Request world_put(const char *key, bool only_if_absent)
{
    static const struct iovec body[2] = {{.iov_base = (void *)"hello ", .iov_len = 6},
                                         {.iov_base = (void *)"world", .iov_len = 5}};
    return (S3Request){.method = S3_PUT,
                       .bucket = "bucket",
                       .key = key,
                       .body = body,
                       .n_body = 2,
                       .headers = world_if_absent,
                       .n_headers = only_if_absent ? 1 : 0,
                       .repeatable = !only_if_absent};
}

int world_set_up(_unused_ void **state)
{
    for (size_t i = 0; i < sizeof(world_blob); i++)
        world_blob[i] = (uint8_t)(i * 2654435761u >> 13);
    (void)setenv("AWS_ACCESS_KEY_ID", "AKTEST", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "THESECRET", 1);
    (void)unsetenv("AWS_SESSION_TOKEN");
    (void)setenv("no_proxy", "*", 1);
    return 0;
}
