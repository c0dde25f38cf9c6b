/* SPDX-License-Identifier: Apache-2.0 */
/* test-credentials-renewal.c - credentials are renewed, rejected, or expire; as long as there are valid credentials, no
 * caller waits. */
#include "store/s3/test/testing-credentials.h"

#include "base/file.h"

#include <fcntl.h>
#include <string.h>

static void test_rotated_key(void **state)
{
    Fixture *f = *state;
    S3Credentials c;
    uint64_t serial, later;
    Error err;
    fixture_write(f, "credentials",
                  "[default]\naws_access_key_id = AKOLD\naws_secret_access_key = " SECRET "\n");
    fixture_expect(f, "AKOLD");
    assert_int_equal(fixture_get(f, &c, &serial, &err), 0);
    fixture_write(f, "credentials",
                  "[default]\naws_access_key_id = AKNEW\naws_secret_access_key = " SECRET "\n");
    s3_identity_reject(f->identity, serial);
    assert_int_equal(fixture_wait(f, &c, &later, &err), 0);
    assert_string_equal(c.access_key, "AKNEW");
    assert_true(later > serial);
    s3_identity_reject(f->identity, serial); /* an old serial has no effect */
    assert_int_equal(fixture_get(f, &c, &serial, &err), 0);
    assert_int_equal(serial, later);
    fixture_write(f, "credentials", "[default]\nregion = eu-west-1\n");
    s3_identity_reject(f->identity, serial);
    assert_int_equal(fixture_wait(f, &c, &later, &err), -EACCES);
    assert_non_null(strstr(err.text, "no keys any more"));
    fixture_write(f, "credentials",
                  "[default]\naws_access_key_id = AKLAST\naws_secret_access_key = " SECRET "\n");
    for (int i = 0; i < PATIENCE_SEC * 100 && fixture_get(f, &c, &later, &err) < 0; i++)
        (void)usleep(10000); /* the identity itself reads the file again */
    assert_string_equal(c.access_key, "AKLAST");
}

enum { LIFE_SEC = 16, ONE_HOUR = 3600 };

/* The server's clock is an hour behind ours. The first credentials are valid for LIFE_SEC; then the server refuses a
 * request, then it delays its answer until the test continues. */
static bool answer_renewal(void *context, const EndpointRequest *request, char *ret, size_t size)
{
    Fixture *f = context;
    int64_t date = seconds_now() - ONE_HOUR;
    if (request->number == 1) {
        json_reply(ret, size, "AKFIRST", date, date + LIFE_SEC);
    } else if (request->number == 2) {
        endpoint_reply(ret, size, 500, date, "{\"message\": \"" SECRET "\"}");
        f->phase = 1;
    } else {
        f->phase = 2;
        (void)pthread_mutex_lock(&f->lock);
        while (f->phase != 3)
            (void)pthread_cond_wait(&f->changed, &f->lock);
        (void)pthread_mutex_unlock(&f->lock);
        json_reply(ret, size, "AKSECOND", date, date + ONE_HOUR);
    }
    return true;
}

static void test_renewal(void **state)
{
    Fixture *f = *state;
    S3Credentials c;
    uint64_t serial;
    Error err;
    fixture_serve(f, answer_renewal, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "/");
    fixture_expect(f, "AKFIRST");
    while (f->phase < 2) { /* while credentials are valid, no call waits or fails */
        assert_int_equal(fixture_get(f, &c, &serial, &err), 0);
        assert_int_equal(serial, 1);
        (void)usleep(1000);
    }
    (void)pthread_mutex_lock(&f->lock);
    f->phase = 3;
    (void)pthread_cond_broadcast(&f->changed);
    (void)pthread_mutex_unlock(&f->lock);
    fixture_wait_serial(f, 2, &c);
    assert_string_equal(c.access_key, "AKSECOND");
}

static bool answer_expired(void *context, const EndpointRequest *request, char *ret, size_t size)
{
    Fixture *f = context;
    int64_t date = seconds_now();
    json_reply(ret, size, "AKLATE", date,
               f->phase == 0 ? date - 1 : date + (request->number == 1 ? 8 : -1));
    return true;
}

static void test_expired_already(void **state)
{
    Fixture *f = *state;
    fixture_serve(f, answer_expired, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "/");
    REFUSE(f, -EACCES, "the container's endpoint", "gave credentials that have expired");
}

/* No new credentials arrive in time. The failure is logged while the old credentials are valid, and returned to callers
 * when the old credentials have expired. */
static void test_expired(void **state)
{
    Fixture *f = *state;
    S3Credentials c;
    uint64_t serial;
    Error err;
    char path[128], *text;
    size_t n_text;
    int r;
    (void)snprintf(path, sizeof(path), "%s/log", f->folder);
    int kept = dup(STDERR_FILENO);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    f->phase = 1;
    fixture_serve(f, answer_expired, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "/");
    fixture_expect(f, "AKLATE");
    for (int i = 0; (r = fixture_wait(f, &c, &serial, &err)) == 0 && i < PATIENCE_SEC * 100; i++)
        (void)usleep(10000);
    f->identity = s3_identity_free(f->identity);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    (void)close(kept); /* closing cannot lose data here */
    (void)close(file);
    assert_int_equal(r, -EACCES);
    assert_non_null(strstr(err.text, "gave credentials that have expired"));
    assert_int_equal(file_read(path, 1 << 20, &text, &n_text, &err), 0);
    assert_no_secret(text);
    assert_non_null(strstr(text, "credentials cannot be renewed"));
    free(text);
}

static bool answer_never(_unused_ void *context, _unused_ const EndpointRequest *request,
                         _unused_ char *ret, _unused_ size_t size)
{
    Fixture *f = context;
    f->phase = 1;
    return false;
}

/* An identity that waits for an endpoint is freed at once, without waiting for the endpoint's timeout. */
static void test_free_while_asking(void **state)
{
    Fixture *f = *state;
    Error err;
    S3Credentials c;
    uint64_t serial;
    fixture_serve(f, answer_never, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "/");
    assert_int_equal(fixture_new(f, &err), 0);
    while (f->phase == 0)
        (void)usleep(1000);
    assert_int_equal(fixture_get(f, &c, &serial, &err), -EAGAIN);
    f->identity = s3_identity_free(f->identity);
    assert_int_equal(f->n_ready, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_rotated_key),       FIXTURE_TEST(test_renewal),
        FIXTURE_TEST(test_expired_already),   FIXTURE_TEST(test_expired),
        FIXTURE_TEST(test_free_while_asking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
