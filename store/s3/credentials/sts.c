/* SPDX-License-Identifier: Apache-2.0 */
/* sts.c - web identity: sends a token from a file (Kubernetes renews it) to STS's
 * AssumeRoleWithWebIdentity, which answers with credentials. The request is not signed.
 *
 * It is a POST, so that the token is not part of a URL and does not appear in access logs. */
#include "base/memory.h"
#include "base/text/secret.h"
#include "store/s3/credentials/source.h"

#include <curl/curl.h>
#include <expat.h>
#include <string.h>
#include <strings.h>

enum {
    STS_CONNECT_MSEC = 5000,
    STS_WHOLE_MSEC = 15000,
    DEPTH_MAX = 16,
    SESSION_MAX = 64, /* STS's limit for the length of a session's name */
};

/* ---- configuration ---- */

/* STS accepts letters, digits and "_=,.@-", at least two characters. */
static char *session_name(const char *wanted)
{
    char host[SESSION_MAX] = "node", name[SESSION_MAX + 1];
    (void)gethostname(host, sizeof(host) - 1); /* on failure, the name stays "node" */
    host[sizeof(host) - 1] = '\0';
    (void)snprintf(name, sizeof(name), "%s%s", wanted ? "" : "sdtrain-", wanted ?: host);
    for (char *p = name; *p; p++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_=,.@-", *p))
            *p = '-';
    return memory_text(name);
}

static char *sts_url(const char *endpoint, const char *region)
{
    const char *domain = strncmp(region, "cn-", 3) == 0 ? "amazonaws.com.cn" : "amazonaws.com";
    return endpoint ? memory_text(endpoint) : memory_format("https://sts.%s.%s/", region, domain);
}

int source_find_web_identity(S3Source *source, const S3Options *options, const SharedFile *config,
                             const SharedFile *credentials, Error *err)
{
    const char *profile = options->profile;
    const char *file = s3_variable("AWS_WEB_IDENTITY_TOKEN_FILE");
    const char *role = s3_variable("AWS_ROLE_ARN");
    const char *session = s3_variable("AWS_ROLE_SESSION_NAME");
    const char *where = "AWS_WEB_IDENTITY_TOKEN_FILE";
    if (!file) {
        file = source_profile_value(config, credentials, profile, "web_identity_token_file");
        role = source_profile_value(config, credentials, profile, "role_arn");
        session = source_profile_value(config, credentials, profile, "role_session_name");
        where = "web_identity_token_file of the profile";
    }
    if (!file)
        return -ENOENT;
    if (!role)
        return error_set(err, -EINVAL, "web identity: %s is set (%s), and no role's ARN beside it",
                         where, file);

    const char *ignore = s3_variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    const char *endpoint = NULL;
    if (!ignore || strcasecmp(ignore, "true") != 0)
        endpoint = s3_variable("AWS_ENDPOINT_URL_STS")
                       ?: s3_variable("AWS_ENDPOINT_URL")
                       ?: source_profile_value(config, credentials, profile, "endpoint_url");
    source->kind = S3_SOURCE_WEB_IDENTITY;
    source->url = sts_url(endpoint, options->region);
    source->session_name = session_name(session);
    source->token_file = memory_text(file);
    source->role_arn = memory_text(role);
    _cleanup_free_ char *place = source_place(source->url);
    source->name = memory_format("web identity (%s at %s)", role, place);
    return 0;
}

/* ---- the request ---- */

static char *form_body(const S3Source *source, const char *token)
{
    char *role = memory_given(curl_easy_escape(NULL, source->role_arn, 0));
    char *session = memory_given(curl_easy_escape(NULL, source->session_name, 0));
    char *escaped = memory_given(curl_easy_escape(NULL, token, 0));
    char *body = memory_format("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=%s&"
                               "RoleSessionName=%s&WebIdentityToken=%s",
                               role, session, escaped);
    explicit_bzero(escaped, strlen(escaped));
    curl_free(escaped);
    curl_free(session);
    curl_free(role);
    return body;
}

int source_fetch_web_identity(S3Source *source, S3Fetched *ret, Error *err)
{
    int r = source_read_token(source, err);
    if (r < 0)
        return r;
    _cleanup_secret_ char *body = form_body(source, source->token);
    S3HttpRequest request = {.method = "POST",
                             .url = source->url,
                             .headers = {"Content-Type: application/x-www-form-urlencoded"},
                             .body = body,
                             .ca_bundle = source->ca_bundle,
                             .connect_msec = STS_CONNECT_MSEC,
                             .whole_msec = STS_WHOLE_MSEC};
    S3HttpReply reply;
    r = s3_http_request(source->http, &request, &reply, err);
    if (r < 0)
        return error_prefix(err, r == -EBADMSG ? -EACCES : r, "%s", source->name);

    char code[64] = "";
    r = credentials_parse_sts(source, reply.body, reply.n_body, &ret->credentials, code, err);
    /* A refusal with a code is final, except for these two codes; a 5xx or 429 may be temporary in any case. */
    bool passing = reply.status >= 500 || reply.status == 429 ||
                   strcmp(code, "IDPCommunicationError") == 0 || strcmp(code, "Throttling") == 0;
    if (r >= 0 && reply.status != 200)
        r = error_set(err, -EACCES, "%s: credentials came with status %ld", source->name,
                      reply.status);
    else if (r < 0 && !code[0])
        (void)error_set(err, r, "%s: status %ld, and no answer of STS", source->name, reply.status);
    ret->server_time = reply.date;
    return r < 0 && passing ? -EHOSTUNREACH : r;
}

/* ---- the answer ---- */

typedef struct Sts {
    XML_Parser parser;
    unsigned depth;
    /* refused: the document has a DTD, or is nested too deeply. */
    bool in_credentials, in_error, refused;
    char *into; /* destination of the element's text; NULL: dropped */
    size_t into_size, n;
    char access_key[256], secret_key[256], token[S3_TOKEN_MAX], expiration[64];
    char code[64], message[160];
} Sts;

/* Moves memory for expat, and wipes the old block, which may hold secrets. */
static void *wiping_realloc(void *p, size_t n)
{
    void *longer = malloc(n);
    if (longer && p) {
        memcpy(longer, p, MIN(n, malloc_usable_size(p)));
        secret_free(p);
    }
    return longer;
}

static void on_start(void *userdata, const XML_Char *name, _unused_ const XML_Char **attributes)
{
    static const struct {
        const char *name;
        bool error;
        size_t offset, size;
    } known[] = {
        {"AccessKeyId", false, offsetof(Sts, access_key), sizeof(((Sts *)0)->access_key)},
        {"SecretAccessKey", false, offsetof(Sts, secret_key), sizeof(((Sts *)0)->secret_key)},
        {"SessionToken", false, offsetof(Sts, token), sizeof(((Sts *)0)->token)},
        {"Expiration", false, offsetof(Sts, expiration), sizeof(((Sts *)0)->expiration)},
        {"Code", true, offsetof(Sts, code), sizeof(((Sts *)0)->code)},
        {"Message", true, offsetof(Sts, message), sizeof(((Sts *)0)->message)},
    };
    Sts *sts = userdata;

    sts->into = NULL;
    if (++sts->depth > DEPTH_MAX) {
        sts->refused = true;
        (void)XML_StopParser(sts->parser, XML_FALSE); /* cannot fail while parsing */
        return;
    }
    if (strcmp(name, "Credentials") == 0)
        sts->in_credentials = true;
    else if (strcmp(name, "Error") == 0)
        sts->in_error = true;
    for (size_t i = 0; i < ELEMENTSOF(known); i++)
        if (strcmp(name, known[i].name) == 0 &&
            (known[i].error ? sts->in_error : sts->in_credentials)) {
            sts->into = (char *)sts + known[i].offset;
            sts->into_size = known[i].size;
            sts->n = 0;
            sts->into[0] = '\0';
        }
}

static void on_sts_end(void *userdata, const XML_Char *name)
{
    Sts *sts = userdata;
    sts->into = NULL;
    sts->depth--;
    if (strcmp(name, "Credentials") == 0)
        sts->in_credentials = false;
    else if (strcmp(name, "Error") == 0)
        sts->in_error = false;
}

/* Appends text to the current value. A value that is too long fills its field, and is refused later because of that. */
static void on_sts_text(void *userdata, const XML_Char *text, int n_bytes)
{
    Sts *sts = userdata;
    if (!sts->into)
        return;
    size_t n = MIN((size_t)n_bytes, sts->into_size - 1 - sts->n);
    memcpy(sts->into + sts->n, text, n);
    sts->n += n;
    sts->into[sts->n] = '\0';
}

static void on_sts_doctype(void *userdata, _unused_ const XML_Char *name,
                           _unused_ const XML_Char *id, _unused_ const XML_Char *public_id,
                           _unused_ int has_subset)
{
    Sts *sts = userdata;
    sts->refused = true;
    (void)XML_StopParser(sts->parser, XML_FALSE); /* cannot fail while parsing */
}

static bool parse(Sts *sts, const char *text, size_t n_bytes)
{
    static const XML_Memory_Handling_Suite memory = {malloc, wiping_realloc, secret_free};
    sts->parser = XML_ParserCreate_MM("UTF-8", &memory, NULL);
    if (!sts->parser)
        return false;
    XML_SetUserData(sts->parser, sts);
    XML_SetElementHandler(sts->parser, on_start, on_sts_end);
    XML_SetCharacterDataHandler(sts->parser, on_sts_text);
    XML_SetStartDoctypeDeclHandler(sts->parser, on_sts_doctype);
    enum XML_Status status = XML_Parse(sts->parser, text, (int)n_bytes, XML_TRUE);
    XML_ParserFree(sts->parser);
    return status == XML_STATUS_OK && !sts->refused;
}

static void sts_wipe(Sts *sts) { explicit_bzero(sts, sizeof(*sts)); }

int credentials_parse_sts(const S3Source *source, const char *text, size_t n_bytes,
                          S3Credentials *ret, char ret_code[64], Error *err)
{
    _cleanup_(sts_wipe) Sts sts = {0};
    ret_code[0] = '\0';
    if (n_bytes > S3_HTTP_REPLY_MAX || !parse(&sts, text, n_bytes))
        return error_set(err, -EACCES, "%s: it answered no XML of STS", source->name);
    if (sts.code[0]) {
        char message[sizeof(sts.message)];
        source_quote(source, sts.code, ret_code, sizeof(sts.code));
        source_quote(source, sts.message, message, sizeof(message));
        return error_set(err, -EACCES, "%s: %s%s%s", source->name, ret_code, *message ? ": " : "",
                         message);
    }

    int r = source_take(source, "AccessKeyId", sts.access_key, ret->access_key,
                        sizeof(ret->access_key) - 1, err);
    if (r >= 0)
        r = source_take(source, "SecretAccessKey", sts.secret_key, ret->secret_key,
                        sizeof(ret->secret_key) - 1, err);
    if (r >= 0)
        r = source_take(source, "SessionToken", sts.token, ret->token, sizeof(ret->token) - 1, err);
    if (r >= 0 && credentials_parse_time(sts.expiration, &ret->expires) < 0)
        r = error_set(err, -EINVAL, "%s: Expiration is not a time like 2026-01-31T12:00:00Z",
                      source->name);
    return r;
}
