/* SPDX-License-Identifier: Apache-2.0 */
/* test-credentials.c - tests every source of credentials against simulated endpoints: which requests are sent, how
 * answers, silence and garbage are handled, and that no text contains a secret. */
#include "store/s3/test/testing-credentials.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <strings.h>

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
    s3_identity_reject(f->identity, serial); /* the environment has no other credentials */
    assert_int_equal(fixture_get(f, &c, &later, &err), 0);
    assert_int_equal(later, serial);
}

static void test_nothing(void **state)
{
    REFUSE(*state, -EACCES, "none are set up", "AWS_ACCESS_KEY_ID", "~/.aws/credentials", "role");
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
    REFUSE(f, -EACCES, "none are set up");
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
        phase = 0; /* the server recovers */
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
    fixture_serve(f, answer_sts, "AWS_ENDPOINT_URL_STS", "/sts");
    fixture_file(f, "AWS_WEB_IDENTITY_TOKEN_FILE", "token", PASS "\n");
    REFUSE(f, -EINVAL, "web identity", "AWS_WEB_IDENTITY_TOKEN_FILE", "no role");
    fixture_variable("AWS_ROLE_ARN", "arn:aws:iam::1:role/r");
    /* the request to STS uses a proxy if one is set */
    REFUSE(f, -EHOSTUNREACH, "web identity", "through the proxy http://127.0.0.1:9 of http_proxy");
    fixture_variable("http_proxy", NULL);
    fixture_variable("AWS_ROLE_SESSION_NAME", "me 1");
    fixture_expect(f, "AKSTS");
    assert_int_equal(fixture_get(f, &c, &serial, &err), 0);
    assert_string_equal(c.token, TOKEN);
    assert_int_equal(c.expires, FAR_AWAY);
    f->identity = s3_identity_free(f->identity);

    f->phase = 1;
    REFUSE(f, -EACCES, "web identity (arn:aws:iam::1:role/r at http://127",
           "ExpiredTokenException: Token *** expired at noon");
    f->phase = 2;
    REFUSE(f, -EACCES, "AccessDenied: Not authorized to perform it");
    for (f->phase = 3; f->phase <= 5; f->phase++)
        REFUSE(f, -EACCES, "web identity", "no answer of STS");
    f->phase = 6;
    REFUSE(f, -EACCES, "web identity", "no answer of STS");
    f->phase = 7;
    /* The first two fetches fail and are tried again, so no failure is reported. */
    fixture_expect(f, "AKSTS");
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

enum { CUT_OFF = 8 }; /* two of three replies are cut within their head */

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
    else if (f->phase == CUT_OFF && request->number % 3 != 0)
        (void)snprintf(ret, size, "HTTP/1.1 200 OK\r\nContent-Le");
    else if (f->phase == CUT_OFF)
        json_reply(ret, size, "AKTHIRD", 0, FAR_AWAY);
    else if (f->phase > 0)
        endpoint_reply(ret, size, replies[f->phase - 1].status, 0, replies[f->phase - 1].body);
    else if (endpoint_has_header(request, "Authorization: " PASS))
        json_reply(ret, size, "AKFIRST", 0, FAR_AWAY);
    else if (endpoint_has_header(request, "Authorization: " PASS "-renewed"))
        json_reply(ret, size, "AKSECOND", 0, FAR_AWAY);
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
    fixture_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN", PASS "\r\nX-Forged: 1");
    REFUSE(f, -EINVAL, "AWS_CONTAINER_AUTHORIZATION_TOKEN holds a line's end");
    fixture_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN", PASS);
    fixture_expect(f, "AKFIRST");
    f->identity = s3_identity_free(f->identity);

    f->phase = 1;
    REFUSE(f, -EACCES, "NotFound: no role");
    f->phase = 2;
    REFUSE(f, -EACCES, "***");
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
    f->phase = CUT_OFF;
    fixture_expect(f, "AKTHIRD");
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
        return false; /* as if the answer needed more network hops than allowed */
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
            json_reply(ret, size, "AKROLE", 0, FAR_AWAY);
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
    REFUSE(f, -EACCES, "environment", "shared files", "the metadata of the instance (http://127");
    f->phase = 2;
    REFUSE(f, -EACCES, "asked for a token, it answered status 403");
    f->phase = 3;
    REFUSE(f, -EACCES, "what it gave is not a token");
    f->phase = 4;
    REFUSE(f, -EACCES, "the instance has no role");
    f->phase = 5;
    REFUSE(f, -EACCES, "is not a role's name");
    f->phase = 6;
    REFUSE(f, -EACCES, "AssumeRoleUnauthorizedAccess");
    f->phase = 7;
    REFUSE(f, -EACCES, "the metadata of the instance"); /* the reply is cut off three times */
}

/* ---- the default addresses ---- */

static bool answer_relative(_unused_ void *context, const EndpointRequest *request, char *ret,
                            size_t size)
{
    if (strcmp(request->path, "/v2/credentials/x") == 0)
        json_reply(ret, size, "AKRELATIVE", 0, FAR_AWAY);
    else
        endpoint_reply(ret, size, 404, 0, "");
    return true;
}

/* Runs in a network namespace of its own. Its loopback interface has the default addresses of the container's and the
 * instance's endpoints. */
static void test_default_addresses(void **state)
{
    Fixture *f = *state;
    int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    assert_true(home >= 0);
    if (unshare(CLONE_NEWNET) < 0) {
        (void)close(home); /* closing cannot lose data here */
        skip();            /* only root may create the namespace */
    }
    assert_int_equal(system("ip link set lo up && ip address add 169.254.170.2/32 dev lo && "
                            "ip address add 169.254.169.254/32 dev lo"),
                     0);
    FakeEndpoint *container = endpoint_start("169.254.170.2:80", answer_relative, f);
    FakeEndpoint *instance = endpoint_start("169.254.169.254:80", answer_instance, f);
    fixture_variable("AWS_EC2_METADATA_DISABLED", NULL);
    fixture_expect(f, "AKROLE");
    f->identity = s3_identity_free(f->identity);
    fixture_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/x");
    fixture_expect(f, "AKRELATIVE");
    f->identity = s3_identity_free(f->identity);
    endpoint_stop(container);
    endpoint_stop(instance);
    assert_int_equal(setns(home, CLONE_NEWNET), 0);
    (void)close(home); /* closing cannot lose data here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_environment),
        FIXTURE_TEST(test_nothing),
        FIXTURE_TEST(test_profiles),
        FIXTURE_TEST(test_web_identity),
        FIXTURE_TEST(test_web_identity_of_profile),
        FIXTURE_TEST(test_container),
        FIXTURE_TEST(test_container_hosts),
        FIXTURE_TEST(test_instance),
        FIXTURE_TEST(test_default_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
