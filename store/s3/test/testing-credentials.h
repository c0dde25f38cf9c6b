/* testing-credentials.h - an identity under test: an environment of its own, a folder for files, an
 * endpoint, and patience.
 *
 * Ownership: fixture_begin() and fixture_end() are cmocka's setup and teardown.
 * Units:     seconds since 1970.
 * Errors:    what is not as it should be fails the test; so does a secret in any text.
 * Threads:   the test's own.
 */
#pragma once

#include "base/test/testing.h"

#include "store/s3/credentials/source.h"
#include "store/s3/test/testing-endpoint.h"

#include <pthread.h>
#include <stdatomic.h>

/* They must be in no text. */
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
    atomic_int phase; /* the endpoint's */
} Fixture;

int fixture_begin(void **state);
int fixture_end(void **state);
#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_begin, fixture_end)

void fixture_variable(const char *name, const char *value); /* NULL: unset */
void fixture_write(Fixture *f, const char *name, const char *text);
/* A variable that names a file of the folder. */
void fixture_file(Fixture *f, const char *variable, const char *name, const char *text);
/* An endpoint instead of the last, whose URL with that path a variable names. */
void fixture_serve(Fixture *f, EndpointAnswer answer, const char *variable, const char *path);

int fixture_new(Fixture *f, Error *err);
int fixture_get(Fixture *f, S3Credentials *ret, uint64_t *ret_serial, Error *err);
/* Until there is an answer; bounded. */
int fixture_wait(Fixture *f, S3Credentials *ret, uint64_t *ret_serial, Error *err);
/* Until the serial, while every get succeeds. */
void fixture_wait_serial(Fixture *f, uint64_t serial, S3Credentials *ret);
/* A new identity, its first answer: credentials whose access key is this one. */
void fixture_expect(Fixture *f, const char *access_key);
/* A new identity that answers with a failure, whose text has all words. */
void fixture_refuse(Fixture *f, int wanted, const char *const *words);
#define REFUSE(f, r, ...) fixture_refuse(f, r, (const char *const[]){__VA_ARGS__, NULL})

void assert_no_secret(const char *text);
int64_t seconds_now(void);
/* What a container and an instance answer. */
void json_reply(char *ret, size_t size, const char *access_key, int64_t date, int64_t expires);
