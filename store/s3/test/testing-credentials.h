/* SPDX-License-Identifier: Apache-2.0 */
/* testing-credentials.h - an identity under test, with its own environment, folder for files and endpoint.
 *
 * Units: seconds since 1970. Threads: the test's own.
 * Ownership: fixture_begin() and fixture_end() are cmocka's setup and teardown.
 * Errors:    a wrong result fails the test; so does a secret in any text.
 */
#pragma once

#include "base/test/testing.h"

#include "store/s3/credentials/source.h"
#include "store/s3/test/testing-endpoint.h"

#include <pthread.h>
#include <stdatomic.h>

/* The secrets for which assert_no_secret() searches. */
#define SECRET "very/Secret+Key"
#define TOKEN "session-Token-of-nobody"
#define PASS "pass-that-is-shown-to-an-endpoint"

enum { PATIENCE_SEC = 60 };
#define FAR_AWAY INT64_C(4070908800) /* 2099-01-01T00:00:00Z */

typedef struct Fixture {
    char folder[64];
    S3Options options;
    S3Identity *identity;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned n_ready;
    FakeEndpoint *endpoint;
    atomic_int phase; /* state of the endpoint, set by the test */
} Fixture;

int fixture_begin(void **state);
int fixture_end(void **state);
#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_begin, fixture_end)

void fixture_variable(const char *name, const char *value); /* value NULL unsets the variable */
void fixture_write(Fixture *f, const char *name, const char *text);
/* Writes a file into the folder, and sets a variable of the environment to its path. */
void fixture_file(Fixture *f, const char *variable, const char *name, const char *text);
/* Starts an endpoint in place of the last one, and sets a variable of the environment to its URL with `path`. */
void fixture_serve(Fixture *f, EndpointAnswer answer, const char *variable, const char *path);

int fixture_new(Fixture *f, Error *err);
int fixture_get(Fixture *f, S3Credentials *ret, uint64_t *ret_serial, Error *err);
/* Waits until the identity has credentials or a failure, at most PATIENCE_SEC. */
int fixture_wait(Fixture *f, S3Credentials *ret, uint64_t *ret_serial, Error *err);
/* Waits until the credentials have at least that serial; every s3_identity_get() until then must succeed. */
void fixture_wait_serial(Fixture *f, uint64_t serial, S3Credentials *ret);
/* Makes an identity; its first credentials must have this access key. */
void fixture_expect(Fixture *f, const char *access_key);
/* Makes an identity; it must fail with `wanted` and an error that has all words. */
void fixture_refuse(Fixture *f, int wanted, const char *const *words);
#define REFUSE(f, r, ...) fixture_refuse(f, r, (const char *const[]){__VA_ARGS__, NULL})

void assert_no_secret(const char *text);
int64_t seconds_now(void);
/* Makes the answer of a container or an instance. */
void json_reply(char *ret, size_t size, const char *access_key, int64_t date, int64_t expires);
