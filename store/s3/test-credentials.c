/* test-credentials.c - every source against endpoints of our own: what is asked, what is made of
 * answers, silence and garbage, how credentials are renewed, and that no text holds a secret. */
#include "base/testing.h"

#include "base/clock.h"
#include "base/file.h"
#include "store/s3/credentials_source.h"
#include "store/s3/testing-endpoint.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define SECRET "very/Secret+Key"
#define TOKEN "session-Token-of-nobody"
#define PASS "pass-that-is-shown-to-an-endpoint"

enum { PATIENCE_SEC = 60 };

/* ---- one identity under test ---- */

typedef struct Fixture {
    char folder[64];
    S3Options options;
    S3Identity *identity;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned n_ready;
    Endpoint *endpoint;
    atomic_int phase; /* the endpoint's */
} Fixture;

static void fixture_variable(const char *name, const char *value)
{
    assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

static void fixture_write(Fixture *f, const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", f->folder, name);
    assert_int_equal(file_write(path, text, strlen(text), 0, NULL), 0);
}

/* A variable that names a file of the folder. */
static void fixture_file(Fixture *f, const char *variable, const char *name, const char *text)
{
    char path[128];
    fixture_write(f, name, text);
    (void)snprintf(path, sizeof(path), "%s/%s", f->folder, name);
    fixture_variable(variable, path);
}

static int fixture_begin(void **state)
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
    fixture_variable("http_proxy", "http://127.0.0.1:9"); /* nobody; local endpoints pass it by */
    fixture_file(f, "AWS_CONFIG_FILE", "config", "");
    fixture_file(f, "AWS_SHARED_CREDENTIALS_FILE", "credentials", "");
    assert_int_equal(pthread_mutex_init(&f->lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&f->changed, NULL), 0);
    *state = f;
    return 0;
}

static int fixture_end(void **state)
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

static void assert_no_secret(const char *text)
{
    static const char *const secrets[] = {SECRET, TOKEN, PASS};
    for (size_t i = 0; i < ELEMENTSOF(secrets); i++)
        if (strstr(text, secrets[i]))
            fail_msg("a secret is in: %s", text);
}

static int fixture_new(Fixture *f, Error *err)
{
    s3_options_clear(&f->options);
    int r = s3_options_load(&f->options, err);
    if (r >= 0)
        r = s3_identity_new(&f->options, on_ready, f, &f->identity, err);
    if (r < 0)
        assert_no_secret(err->text);
    return r;
}

static int fixture_get(Fixture *f, S3Credentials *ret, uint64_t *ret_serial, Error *err)
{
    *err = ERROR_INIT;
    int r = s3_identity_get(f->identity, ret, ret_serial, err);
    assert_no_secret(err->text);
    return r;
}

/* Until there is an answer; bounded. */
static int fixture_wait(Fixture *f, S3Credentials *ret, uint64_t *ret_serial, Error *err)
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

/* Until the serial, while every get succeeds. */
static void fixture_wait_serial(Fixture *f, uint64_t serial, S3Credentials *ret)
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

/* A new identity, its first answer: credentials whose access key is this one. */
static void fixture_expect(Fixture *f, const char *access_key)
{
    S3Credentials c;
    uint64_t serial;
    Error err = ERROR_INIT;
    if (fixture_new(f, &err) < 0 || fixture_wait(f, &c, &serial, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(c.access_key, access_key);
    assert_string_equal(c.secret_key, SECRET);
}

/* A new identity that answers with a failure, whose text has all words. */
static void fixture_refuse(Fixture *f, int wanted, const char *const *words)
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
#define REFUSE(f, r, ...) fixture_refuse(f, r, (const char *const[]){__VA_ARGS__, NULL})

static void fixture_serve(Fixture *f, EndpointAnswer answer, const char *variable, const char *path)
{
    char url[128];
    if (f->endpoint)
        endpoint_stop(f->endpoint);
    f->endpoint = endpoint_start(answer, f);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d%s", endpoint_port(f->endpoint), path);
    fixture_variable(variable, url);
}

static int64_t seconds_now(void) { return (int64_t)(clock_realtime_usec() / USEC_PER_SEC); }

static void time_text(int64_t seconds, char ret[32])
{
    time_t time = (time_t)seconds;
    struct tm tm;
    (void)strftime(ret, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&time, &tm));
}

/* What a container and an instance answer. */
static void json_reply(char *ret, size_t size, const char *access_key, int64_t date,
                       int64_t expires)
{
    char body[512], expiration[32];
    time_text(expires, expiration);
    (void)snprintf(body, sizeof(body),
                   "{\"Code\": \"Success\", \"AccessKeyId\": \"%s\", \"SecretAccessKey\": \"" SECRET
                   "\", \"Token\": \"" TOKEN "\", \"Expiration\": \"%s\"}",
                   access_key, expiration);
    endpoint_reply(ret, size, 200, date, body);
}

/* ---- the environment ---- */

static void test_environment(void **state)
{
    Fixture *f = *state;
    S3Credentials c;
    uint64_t serial, later;
    Error err;

    fixture_variable("AWS_ACCESS_KEY_ID", "AKENV");
    REFUSE(f, -EINVAL, "AWS_ACCESS_KEY_ID and no AWS_SECRET_ACCESS_KEY");
    fixture_variable("AWS_SECRET_ACCESS_KEY", SECRET "\n");
    REFUSE(f, -EINVAL, "environment", "AWS_SECRET_ACCESS_KEY holds a space or a control character");
    fixture_variable("AWS_SECRET_ACCESS_KEY", SECRET);
    fixture_variable("AWS_SESSION_TOKEN", TOKEN);
    fixture_file(f, "AWS_SHARED_CREDENTIALS_FILE", "credentials",
                 "[default]\naws_access_key_id = AKFILE\naws_secret_access_key = other\n");
    fixture_expect(f, "AKENV");
    assert_string_equal(s3_identity_source(f->identity), "the environment");
    assert_int_equal(fixture_get(f, &c, &serial, &err), 0);
    assert_string_equal(c.token, TOKEN);
    s3_identity_reject(f->identity, serial); /* there are no others */
    assert_int_equal(fixture_get(f, &c, &later, &err), 0);
    assert_int_equal(later, serial);
}

static void test_nothing(void **state)
{
    REFUSE(*state, -EACCES, "no credentials", "AWS_ACCESS_KEY_ID", "~/.aws/credentials", "role");
}

/* ---- shared files ---- */

static void test_profiles(void **state)
{
    Fixture *f = *state;
    fixture_write(f, "credentials",
                  "[default]\naws_access_key_id = AKDEFAULT\naws_secret_access_key = " SECRET "\n"
                  "[half]\naws_access_key_id = AKHALF\n");
    fixture_write(f, "config",
                  "[profile work]\naws_access_key_id = AKWORK\naws_secret_access_key = " SECRET
                  "\naws_session_token = " TOKEN "\n"
                  "[profile program]\ncredential_process = /bin/echo " SECRET "\n"
                  "[profile sso]\nsso_session = s\nsso_account_id = 1\n"
                  "[profile role]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = work\n"
                  "[profile bare]\nregion = eu-west-1\n");
    fixture_expect(f, "AKDEFAULT");
    assert_non_null(strstr(s3_identity_source(f->identity), "profile default of /tmp/"));
    f->identity = s3_identity_free(f->identity);
    fixture_variable("AWS_PROFILE", "work");
    fixture_expect(f, "AKWORK");
    f->identity = s3_identity_free(f->identity);

    fixture_variable("AWS_PROFILE", "half");
    REFUSE(f, -EACCES, "profile half", "aws_secret_access_key is missing");
    fixture_variable("AWS_PROFILE", "program");
    REFUSE(f, -EINVAL, "profile program", "credential_process", "not supported");
    fixture_variable("AWS_PROFILE", "sso");
    REFUSE(f, -EINVAL, "profile sso", "sso_session", "not supported");
    fixture_variable("AWS_PROFILE", "role");
    REFUSE(f, -EINVAL, "profile role", "source_profile", "not supported");
    fixture_variable("AWS_PROFILE", "absent");
    REFUSE(f, -EINVAL, "absent", "/credentials", "/config");
    fixture_variable("AWS_PROFILE", "bare");
    REFUSE(f, -EACCES, "no credentials");
}

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
    s3_identity_reject(f->identity, serial); /* of the old ones: late, and nothing happens */
    assert_int_equal(fixture_get(f, &c, &serial, &err), 0);
    assert_int_equal(serial, later);
    fixture_write(f, "credentials", "[default]\nregion = eu-west-1\n");
    s3_identity_reject(f->identity, serial);
    assert_int_equal(fixture_wait(f, &c, &later, &err), -EACCES);
    assert_non_null(strstr(err.text, "no keys any more"));
    fixture_write(f, "credentials",
                  "[default]\naws_access_key_id = AKLAST\naws_secret_access_key = " SECRET "\n");
    for (int i = 0; i < PATIENCE_SEC * 100 && fixture_get(f, &c, &later, &err) < 0; i++)
        (void)usleep(10000); /* it is read again by itself, and says so by no other way here */
    assert_string_equal(c.access_key, "AKLAST");
}

/* ---- web identity ---- */

#define STS_GOOD                                                                                   \
    "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"      \
    "<AssumeRoleWithWebIdentityResult><SubjectFromWebIdentityToken>s</"                            \
    "SubjectFromWebIdentityToken>"                                                                 \
    "<Credentials><SessionToken>" TOKEN "</SessionToken><SecretAccessKey>" SECRET                  \
    "</SecretAccessKey><Expiration>2099-01-01T00:00:00Z</Expiration>"                              \
    "<AccessKeyId>AKSTS</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>"             \
    "</AssumeRoleWithWebIdentityResponse>"
#define STS_ERROR(code, message)                                                                   \
    "<ErrorResponse><Error><Type>Sender</Type><Code>" code "</Code><Message>" message              \
    "</Message></Error><RequestId>r</RequestId></ErrorResponse>"

static bool answer_sts(void *context, const EndpointRequest *request, char *ret, size_t size)
{
    static const struct {
        int status;
        const char *body;
    } replies[] = {
        {200, STS_GOOD},
        {400, STS_ERROR("ExpiredTokenException", "Token " PASS " expired at noon")},
        {403, STS_ERROR("AccessDenied", "Not authorized to perform it")},
        {200, "<html>no"},
        {200, "<!DOCTYPE a [<!ENTITY b \"" SECRET "\">]><a>&b;</a>"},
        {200, "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>"},
        {200, "<r><Credentials><AccessKeyId>A</AccessKeyId></Credentials></r>"},
        {503, "busy"},
    };
    Fixture *f = context;
    bool good = strcmp(request->method, "POST") == 0 && strcmp(request->path, "/sts") == 0 &&
                strstr(request->body, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&") &&
                strstr(request->body, "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&") &&
                strstr(request->body, "RoleSessionName=me-1&WebIdentityToken=" PASS) &&
                !strcasestr(request->head, "\r\nAuthorization:");
    int phase = f->phase;
    if (phase == 7 && request->number % 3 == 0)
        phase = 0; /* it recovers */
    endpoint_reply(ret, size, good ? replies[phase].status : 418, 0,
                   good ? replies[phase].body : "not as it should be asked");
    return true;
}

static void test_web_identity(void **state)
{
    Fixture *f = *state;
    S3Credentials c;
    uint64_t serial;
    Error err;
    fixture_variable("http_proxy", NULL); /* STS is asked through a proxy, where there is one */
    fixture_serve(f, answer_sts, "AWS_ENDPOINT_URL_STS", "/sts");
    fixture_file(f, "AWS_WEB_IDENTITY_TOKEN_FILE", "token", PASS "\n");
    REFUSE(f, -EINVAL, "web identity", "AWS_WEB_IDENTITY_TOKEN_FILE", "no role");
    fixture_variable("AWS_ROLE_ARN", "arn:aws:iam::1:role/r");
    fixture_variable("AWS_ROLE_SESSION_NAME", "me 1");
    fixture_expect(f, "AKSTS");
    assert_int_equal(fixture_get(f, &c, &serial, &err), 0);
    assert_string_equal(c.token, TOKEN);
    assert_int_equal(c.expires, 4070908800);
    f->identity = s3_identity_free(f->identity);

    f->phase = 1;
    REFUSE(f, -EACCES, "web identity (arn:aws:iam::1:role/r with /tmp/", "it refused");
    f->phase = 2;
    REFUSE(f, -EACCES, "AccessDenied: Not authorized to perform it");
    for (f->phase = 3; f->phase <= 5; f->phase++)
        REFUSE(f, -EACCES, "web identity", "no answer of STS");
    f->phase = 6;
    REFUSE(f, -EACCES, "web identity", "no answer of STS");
    f->phase = 7;
    fixture_expect(f, "AKSTS"); /* two that fail are told to nobody */
    f->identity = s3_identity_free(f->identity);

    f->phase = 0;
    fixture_write(f, "token", "");
    REFUSE(f, -EACCES, "web identity", "/token is empty");
    fixture_variable("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent/token");
    REFUSE(f, -EACCES, "web identity", "/nonexistent/token");
}

static void test_web_identity_of_profile(void **state)
{
    Fixture *f = *state;
    char config[512];
    fixture_variable("http_proxy", NULL);
    fixture_serve(f, answer_sts, "AWS_ENDPOINT_URL_STS", "/sts");
    fixture_write(f, "token", PASS);
    (void)snprintf(config, sizeof(config),
                   "[default]\nrole_arn = arn:aws:iam::1:role/r\nrole_session_name = me-1\n"
                   "web_identity_token_file = %s/token\n",
                   f->folder);
    fixture_write(f, "config", config);
    fixture_expect(f, "AKSTS");
}

/* ---- a container's endpoint ---- */

static bool answer_container(void *context, const EndpointRequest *request, char *ret, size_t size)
{
    static const struct {
        int status;
        const char *body;
    } replies[] = {
        {404, "{\"code\": \"NotFound\", \"message\": \"no role\"}"},
        {403, "{\"code\": \"AccessDenied\", \"message\": \"bad token " PASS "\"}"},
        {200, "{\"SecretAccessKey\": \"" SECRET "\""},
        {200, "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": [\"" SECRET "\"]}"},
        {200, "[\"" SECRET "\"]"},
        {200, "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"" SECRET "\\n\"}"},
        {200, "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"" SECRET
              "\", \"Expiration\": \"" SECRET "\"}"},
    };
    Fixture *f = context;
    if (strcmp(request->path, "/v1/credentials?id=1") != 0)
        endpoint_reply(ret, size, 418, 0, "");
    else if (f->phase > 0)
        endpoint_reply(ret, size, replies[f->phase - 1].status, 0, replies[f->phase - 1].body);
    else if (endpoint_has_header(request, "Authorization: " PASS))
        json_reply(ret, size, "AKFIRST", 0, 4070908800);
    else if (endpoint_has_header(request, "Authorization: " PASS "-renewed"))
        json_reply(ret, size, "AKSECOND", 0, 4070908800);
    else
        endpoint_reply(ret, size, 401, 0, "");
    return true;
}

static void test_container(void **state)
{
    Fixture *f = *state;
    S3Credentials c;
    uint64_t serial;
    Error err;
    fixture_serve(f, answer_container, "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                  "/v1/credentials?id=1");
    REFUSE(f, -EACCES, "the container's endpoint http://127.0.0.1:", "status 401");
    fixture_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN", "wrong");
    fixture_file(f, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "pass", PASS "\n");
    fixture_expect(f, "AKFIRST");
    assert_int_equal(fixture_get(f, &c, &serial, &err), 0);
    fixture_write(f, "pass", PASS "-renewed\n");
    s3_identity_reject(f->identity, serial);
    assert_int_equal(fixture_wait(f, &c, &serial, &err), 0);
    assert_string_equal(c.access_key, "AKSECOND");
    f->identity = s3_identity_free(f->identity);
    fixture_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", NULL);
    fixture_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN", PASS);
    fixture_expect(f, "AKFIRST");
    f->identity = s3_identity_free(f->identity);

    f->phase = 1;
    REFUSE(f, -EACCES, "NotFound: no role");
    f->phase = 2;
    REFUSE(f, -EACCES, "it refused");
    f->phase = 3;
    REFUSE(f, -EACCES, "no JSON (line 1, column");
    f->phase = 4;
    REFUSE(f, -EACCES, "SecretAccessKey is missing");
    f->phase = 5;
    REFUSE(f, -EACCES, "no JSON object");
    f->phase = 6;
    REFUSE(f, -EINVAL, "SecretAccessKey holds a space or a control character at byte 15");
    f->phase = 7;
    REFUSE(f, -EINVAL, "Expiration is not a time");
}

static void test_container_hosts(void **state)
{
    static const char *const bad[] = {
        "http://example.com/",
        "http://169.254.170.3/",
        "http://127.0.0.1.example.com/",
        "http://127.0.0.1@10.0.0.1/",
        "ftp://localhost/",
        "http://[::2]/",
        "http://10.127.0.1/",
        "localhost/",
        "",
    };
    static const char *const good[] = {
        "https://example.com/",    "http://localhost:1/", "http://127.9.9.9:1/",
        "http://169.254.170.2/",   "http://[::1]:1/",     "http://169.254.170.23/",
        "http://[fd00:ec2::23]/x",
    };
    Fixture *f = *state;
    Error err = ERROR_INIT;
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        fixture_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI", bad[i]);
        if (*bad[i])
            REFUSE(f, -EINVAL, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    }
    for (size_t i = 0; i < ELEMENTSOF(good); i++) {
        S3Options options;
        S3Source *source;
        fixture_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI", good[i]);
        assert_int_equal(s3_options_load(&options, &err), 0);
        assert_int_equal(s3_source_find(&options, &source, &err), 0);
        assert_string_equal(source->url, good[i]);
        s3_source_free(source);
        fixture_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x");
        assert_int_equal(s3_source_find(&options, &source, &err), 0);
        assert_string_equal(source->url, "http://169.254.170.2/v2/x");
        s3_source_free(source);
        fixture_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", NULL);
        s3_options_clear(&options);
    }
}

/* ---- an instance's metadata ---- */

static bool answer_instance(void *context, const EndpointRequest *request, char *ret, size_t size)
{
    Fixture *f = context;
    int phase = f->phase;
    bool shown = endpoint_has_header(request, "X-aws-ec2-metadata-token: " PASS);
    const char *roles = "/latest/meta-data/iam/security-credentials/";
    if (phase == 1)
        return false; /* as where the answer needs one hop more than it may take */
    if (strcmp(request->path, "/latest/api/token") == 0) {
        bool good = strcmp(request->method, "PUT") == 0 &&
                    endpoint_has_header(request, "X-aws-ec2-metadata-token-ttl-seconds: 21600");
        endpoint_reply(ret, size,
                       !good        ? 400
                       : phase == 2 ? 403
                                    : 200,
                       0, phase == 3 ? "<html>" : PASS);
    } else if (strcmp(request->path, roles) == 0) {
        endpoint_reply(ret, size,
                       !shown       ? 401
                       : phase == 4 ? 404
                                    : 200,
                       0, phase == 5 ? "../../user-data" : "the-role");
    } else if (strcmp(request->path + strlen(roles), "the-role") == 0) {
        if (phase == 6)
            endpoint_reply(ret, size, 200, 0, "{\"Code\": \"AssumeRoleUnauthorizedAccess\"}");
        else if (phase == 7)
            (void)snprintf(ret, size, "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{");
        else
            json_reply(ret, size, "AKROLE", 0, 4070908800);
    } else {
        endpoint_reply(ret, size, 404, 0, "");
    }
    return true;
}

static void test_instance(void **state)
{
    Fixture *f = *state;
    fixture_variable("AWS_EC2_METADATA_DISABLED", NULL);
    fixture_serve(f, answer_instance, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "/");
    fixture_expect(f, "AKROLE");
    f->identity = s3_identity_free(f->identity);
    f->phase = 1;
    REFUSE(f, -EACCES, "no credentials", "environment", "the metadata of the instance (http://127");
    f->phase = 2;
    REFUSE(f, -EACCES, "asked for a token, it answered status 403");
    f->phase = 3;
    REFUSE(f, -EACCES, "what it gave is no token");
    f->phase = 4;
    REFUSE(f, -EACCES, "the instance has no role");
    f->phase = 5;
    REFUSE(f, -EACCES, "no role's name");
    f->phase = 6;
    REFUSE(f, -EACCES, "AssumeRoleUnauthorizedAccess");
    f->phase = 7;
    REFUSE(f, -EACCES, "the metadata of the instance"); /* cut off, three times */
}

/* ---- renewal ---- */

enum { LIFE_SEC = 8, ONE_HOUR = 3600 };

/* The clock of who gives them is an hour behind ours. The first live for LIFE_SEC; then a refusal,
 * then a silence that the test ends. */
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
    while (f->phase < 2) { /* nobody waits, and nothing is told, while they are good */
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
               f->phase == 0 ? date - 1 : date + (request->number == 1 ? 5 : -1));
    return true;
}

static void test_expired_already(void **state)
{
    Fixture *f = *state;
    fixture_serve(f, answer_expired, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "/");
    REFUSE(f, -EACCES, "the container's endpoint", "gave credentials that have expired");
}

/* No new ones came in time. It is logged while the old ones are good, and told when they are not. */
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
    (void)close(kept); /* a test's */
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

/* An identity that waits for an endpoint goes at once, not when the endpoint's time is over. */
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
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_begin, fixture_end)
    const struct CMUnitTest tests[] = {
        TEST(test_environment),       TEST(test_nothing),
        TEST(test_profiles),          TEST(test_rotated_key),
        TEST(test_web_identity),      TEST(test_web_identity_of_profile),
        TEST(test_container),         TEST(test_container_hosts),
        TEST(test_instance),          TEST(test_renewal),
        TEST(test_expired_already),   TEST(test_expired),
        TEST(test_free_while_asking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
