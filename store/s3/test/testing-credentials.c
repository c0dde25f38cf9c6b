/* SPDX-License-Identifier: Apache-2.0 */
/* testing-credentials.c - see testing-credentials.h. */
#include "store/s3/test/testing-credentials.h"

#include "base/clock.h"
#include "base/file.h"

#include <string.h>
#include <time.h>

void fixture_variable(const char *name, const char *value)
{
    assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

void fixture_write(Fixture *f, const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", f->folder, name);
    assert_int_equal(file_write(path, text, strlen(text), 0, NULL), 0);
}

void fixture_file(Fixture *f, const char *variable, const char *name, const char *text)
{
    char path[128];
    fixture_write(f, name, text);
    (void)snprintf(path, sizeof(path), "%s/%s", f->folder, name);
    fixture_variable(variable, path);
}

int fixture_begin(void **state)
{
    static const char *const unset[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_ROLE_ARN",
                                        "AWS_ROLE_SESSION_NAME",
                                        "AWS_PROFILE",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_S3",
                                        "AWS_ENDPOINT_URL_STS",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"};
    Fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    (void)snprintf(f->folder, sizeof(f->folder), "/tmp/test-credentials-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    for (size_t i = 0; i < ELEMENTSOF(unset); i++)
        fixture_variable(unset[i], NULL);
    fixture_variable("AWS_EC2_METADATA_DISABLED", "true");
    /* No proxy runs at this address; requests to local endpoints must use no proxy. */
    fixture_variable("http_proxy", "http://127.0.0.1:9");
    fixture_file(f, "AWS_CONFIG_FILE", "config", "");
    fixture_file(f, "AWS_SHARED_CREDENTIALS_FILE", "credentials", "");
    assert_int_equal(pthread_mutex_init(&f->lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&f->changed, NULL), 0);
    *state = f;
    return 0;
}

int fixture_end(void **state)
{
    Fixture *f = *state;
    s3_identity_free(f->identity);
    if (f->endpoint)
        endpoint_stop(f->endpoint);
    s3_options_clear(&f->options);
    assert_int_equal(folder_remove(f->folder, NULL), 0);
    free(f);
    return 0;
}

static void on_ready(void *context)
{
    Fixture *f = context;
    (void)pthread_mutex_lock(&f->lock);
    f->n_ready++;
    (void)pthread_cond_broadcast(&f->changed);
    (void)pthread_mutex_unlock(&f->lock);
}

void assert_no_secret(const char *text)
{
    static const char *const secrets[] = {SECRET, TOKEN, PASS};
    for (size_t i = 0; i < ELEMENTSOF(secrets); i++)
        if (strstr(text, secrets[i]))
            fail_msg("a secret is in: %s", text);
}

int fixture_new(Fixture *f, Error *err)
{
    s3_options_clear(&f->options);
    int r = s3_options_load(&f->options, err);
    if (r >= 0)
        r = s3_identity_new(&f->options, on_ready, f, &f->identity, err);
    if (r < 0)
        assert_no_secret(err->text);
    return r;
}

int fixture_get(Fixture *f, S3Credentials *ret, uint64_t *ret_serial, Error *err)
{
    *err = ERROR_INIT;
    int r = s3_identity_get(f->identity, ret, ret_serial, err);
    assert_no_secret(err->text);
    return r;
}

int fixture_wait(Fixture *f, S3Credentials *ret, uint64_t *ret_serial, Error *err)
{
    struct timespec end;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &end), 0);
    end.tv_sec += PATIENCE_SEC;
    (void)pthread_mutex_lock(&f->lock);
    int r;
    while ((r = fixture_get(f, ret, ret_serial, err)) == -EAGAIN)
        assert_int_equal(pthread_cond_timedwait(&f->changed, &f->lock, &end), 0);
    (void)pthread_mutex_unlock(&f->lock);
    return r;
}

void fixture_wait_serial(Fixture *f, uint64_t serial, S3Credentials *ret)
{
    struct timespec end;
    uint64_t now = 0;
    Error err;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &end), 0);
    end.tv_sec += PATIENCE_SEC;
    (void)pthread_mutex_lock(&f->lock);
    for (;;) {
        assert_int_equal(fixture_get(f, ret, &now, &err), 0);
        if (now >= serial)
            break;
        assert_int_equal(pthread_cond_timedwait(&f->changed, &f->lock, &end), 0);
    }
    (void)pthread_mutex_unlock(&f->lock);
}

void fixture_expect(Fixture *f, const char *access_key)
{
    S3Credentials c;
    uint64_t serial;
    Error err = ERROR_INIT;
    if (fixture_new(f, &err) < 0 || fixture_wait(f, &c, &serial, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(c.access_key, access_key);
    assert_string_equal(c.secret_key, SECRET);
}

void fixture_refuse(Fixture *f, int wanted, const char *const *words)
{
    S3Credentials c;
    uint64_t serial;
    Error err = ERROR_INIT;
    int r = fixture_new(f, &err);
    if (r >= 0)
        r = fixture_wait(f, &c, &serial, &err);
    if (r != wanted)
        fail_msg("%d, not %d: %s", r, wanted, err.text);
    for (; *words; words++)
        if (!strstr(err.text, *words))
            fail_msg("'%s' is not in: %s", *words, err.text);
    f->identity = s3_identity_free(f->identity);
}

void fixture_serve(Fixture *f, EndpointAnswer answer, const char *variable, const char *path)
{
    char url[128];
    if (f->endpoint)
        endpoint_stop(f->endpoint);
    f->endpoint = endpoint_start("127.0.0.1:0", answer, f);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d%s", endpoint_port(f->endpoint), path);
    fixture_variable(variable, url);
}

int64_t seconds_now(void) { return (int64_t)(clock_realtime_usec() / USEC_PER_SEC); }

static void time_text(int64_t seconds, char ret[32])
{
    time_t time = (time_t)seconds;
    struct tm tm;
    (void)strftime(ret, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&time, &tm));
}

void json_reply(char *ret, size_t size, const char *access_key, int64_t date, int64_t expires)
{
    char body[512], expiration[32];
    time_text(expires, expiration);
    (void)snprintf(body, sizeof(body),
                   "{\"Code\": \"Success\", \"AccessKeyId\": \"%s\", \"SecretAccessKey\": \"" SECRET
                   "\", \"Token\": \"" TOKEN "\", \"Expiration\": \"%s\"}",
                   access_key, expiration);
    endpoint_reply(ret, size, 200, date, body);
}
