/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - finds the configured source, and implements the two sources that are on this machine: environment and
 * shared files. See source.h. */
#include "store/s3/credentials/source.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/proxy.h"
#include "base/text/secret.h"

#include <string.h>

enum { TOKEN_FILE_MAX = 65536 };

int source_read_token(S3Source *source, Error *err)
{
    _cleanup_secret_ char *text = NULL;
    size_t n_bytes;
    if (!source->token_file)
        return 0;
    int r = file_read(source->token_file, TOKEN_FILE_MAX, &text, &n_bytes, err);
    if (r < 0)
        return error_prefix(err, r == -ENOMEM ? r : -EACCES, "%s: the token's file", source->name);
    text[strcspn(text, "\r\n")] = '\0';
    if (!*text)
        return error_set(err, -EACCES, "%s: %s is empty", source->name, source->token_file);
    for (const char *p = text; *p; p++)
        if (*p < 0x20 || *p >= 0x7f)
            return error_set(err, -EACCES, "%s: %s holds a control character", source->name,
                             source->token_file);
    secret_free(source->token);
    source->token = TAKE_PTR(text);
    return 0;
}

char *source_place(const char *url)
{
    const char *scheme = strstr(url, "://"), *host = scheme ? scheme + 3 : url;
    size_t n_scheme = (size_t)(host - url), n = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', n);
    if (at) {
        n -= (size_t)(at + 1 - host);
        host = at + 1;
    }
    return memory_format("%.*s%.*s", (int)n_scheme, url, (int)n, host);
}

void source_take_out(const S3Source *source, char *text)
{
    _cleanup_(secret_set_clear) SecretSet secrets = {0};
    secret_set_add(&secrets, source->token);
    if (source->url && source->kind == S3_SOURCE_CONTAINER)
        secret_set_add_url(&secrets, source->url);
    else if (source->url)
        secret_set_add_url_user(&secrets, source->url);
    proxy_add_secrets(&secrets);
    secret_set_take_out(&secrets, text);
}

/* ---- the environment ---- */

static int find_environment(S3Source *source, Error *err)
{
    const char *key = s3_variable("AWS_ACCESS_KEY_ID");
    const char *secret = s3_variable("AWS_SECRET_ACCESS_KEY");
    if (!key && !secret)
        return -ENOENT;
    if (!key || !secret)
        return error_set(err, -EINVAL,
                         "the environment has AWS_%s and no AWS_%s: give both, or neither",
                         key ? "ACCESS_KEY_ID" : "SECRET_ACCESS_KEY",
                         key ? "SECRET_ACCESS_KEY" : "ACCESS_KEY_ID");
    source->kind = S3_SOURCE_ENVIRONMENT;
    source->name = memory_text("the environment");
    return 0;
}

static int fetch_environment(S3Source *source, S3Credentials *ret, Error *err)
{
    int r = source_take(source, "AWS_ACCESS_KEY_ID", getenv("AWS_ACCESS_KEY_ID"), ret->access_key,
                        sizeof(ret->access_key), err);
    if (r >= 0)
        r = source_take(source, "AWS_SECRET_ACCESS_KEY", getenv("AWS_SECRET_ACCESS_KEY"),
                        ret->secret_key, sizeof(ret->secret_key), err);
    if (r >= 0 && s3_variable("AWS_SESSION_TOKEN"))
        r = source_take(source, "AWS_SESSION_TOKEN", getenv("AWS_SESSION_TOKEN"), ret->token,
                        sizeof(ret->token), err);
    return r;
}

/* ---- the shared files ---- */

const char *source_profile_value(const SharedFile *config, const SharedFile *credentials,
                                 const char *profile, const char *key)
{
    const SharedFile *files[] = {credentials, config};
    for (size_t i = 0; i < ELEMENTSOF(files); i++) {
        const char *value = shared_file_get(files[i], profile, key);
        if (value && *value)
            return value;
    }
    return NULL;
}

/* Returns the file whose profile has keys; the credentials file is searched first. */
static const SharedFile *file_with_keys(const SharedFile *config, const SharedFile *credentials,
                                        const char *profile)
{
    const SharedFile *files[] = {credentials, config};
    for (size_t i = 0; i < ELEMENTSOF(files); i++)
        if (shared_file_get(files[i], profile, "aws_access_key_id") ||
            shared_file_get(files[i], profile, "aws_secret_access_key"))
            return files[i];
    return NULL;
}

/* Refuses a profile whose credentials come from a source that only AWS's tools support, and not this program. */
static int refuse_others(const SharedFile *config, const SharedFile *credentials,
                         const char *profile, Error *err)
{
    static const struct {
        const char *key, *what;
    } others[] = {
        {"credential_process", "a program that prints credentials"},
        {"sso_session", "single sign-on"},
        {"sso_start_url", "single sign-on"},
        {"source_profile", "a role taken on with another profile's keys"},
        {"credential_source", "a role taken on with other credentials"},
    };
    const SharedFile *files[] = {credentials, config};
    for (size_t i = 0; i < ELEMENTSOF(files); i++)
        for (size_t k = 0; k < ELEMENTSOF(others); k++)
            if (shared_file_get(files[i], profile, others[k].key))
                return error_set(err, -EINVAL,
                                 "profile %s of %s: %s (%s) is not supported; give keys, web "
                                 "identity, or a container's or instance's role",
                                 profile, shared_file_name(files[i]), others[k].key,
                                 others[k].what);
    return 0;
}

static int find_profile(S3Source *source, const char *profile, const SharedFile *config,
                        const SharedFile *credentials, Error *err)
{
    int r = refuse_others(config, credentials, profile, err);
    if (r < 0)
        return r;
    const SharedFile *file = file_with_keys(config, credentials, profile);
    if (!file)
        return -ENOENT;
    source->kind = S3_SOURCE_PROFILE;
    source->name = memory_format("profile %s of %s", profile, shared_file_name(file));
    return 0;
}

static int load_files(SharedFile **ret_config, SharedFile **ret_credentials, Error *err)
{
    int r = shared_file_load(SHARED_CONFIG, ret_config, err);
    return r < 0 ? r : shared_file_load(SHARED_CREDENTIALS, ret_credentials, err);
}

/* Reads the shared files again, as the keys may have been rotated. */
static int fetch_profile(S3Source *source, S3Credentials *ret, Error *err)
{
    _cleanup_(shared_file_freep) SharedFile *config = NULL;
    _cleanup_(shared_file_freep) SharedFile *credentials = NULL;
    int r = load_files(&config, &credentials, err);
    if (r < 0)
        return r;
    const SharedFile *file = file_with_keys(config, credentials, source->profile);
    if (!file)
        return error_set(err, -EACCES, "%s: it has no keys any more", source->name);
    const char *token = shared_file_get(file, source->profile, "aws_session_token");
    r = source_take(source, "aws_access_key_id",
                    shared_file_get(file, source->profile, "aws_access_key_id"), ret->access_key,
                    sizeof(ret->access_key), err);
    if (r >= 0)
        r = source_take(source, "aws_secret_access_key",
                        shared_file_get(file, source->profile, "aws_secret_access_key"),
                        ret->secret_key, sizeof(ret->secret_key), err);
    if (r >= 0 && token && *token)
        r = source_take(source, "aws_session_token", token, ret->token, sizeof(ret->token), err);
    return r;
}

/* ---- all sources ---- */

static int find(S3Source *source, const S3Options *options, Error *err)
{
    int r = find_environment(source, err);
    if (r != -ENOENT)
        return r;
    _cleanup_(shared_file_freep) SharedFile *config = NULL;
    _cleanup_(shared_file_freep) SharedFile *credentials = NULL;
    r = load_files(&config, &credentials, err);
    if (r < 0)
        return r;
    r = source_find_web_identity(source, options, config, credentials, err);
    if (r == -ENOENT)
        r = find_profile(source, options->profile, config, credentials, err);
    if (r == -ENOENT)
        r = source_find_container(source, err);
    if (r == -ENOENT)
        r = source_find_instance(source);
    if (r != -ENOENT)
        return r;
    source->kind = S3_SOURCE_NONE;
    source->name = memory_text("nowhere");
    return 0;
}

int s3_source_find(const S3Options *options, S3Source **ret, Error *err)
{
    _cleanup_(s3_source_freep) S3Source *source = memory_new(S3Source);
    source->profile = memory_text(options->profile);
    source->ca_bundle = options->ca_bundle ? memory_text(options->ca_bundle) : NULL;
    int r = find(source, options, err);
    if (r < 0)
        return r;
    if (source->kind == S3_SOURCE_WEB_IDENTITY || source->kind == S3_SOURCE_CONTAINER ||
        source->kind == S3_SOURCE_INSTANCE)
        source->http = s3_http_new();
    *ret = TAKE_PTR(source);
    return 0;
}

S3Source *s3_source_free(S3Source *source)
{
    if (!source)
        return NULL;
    free(source->name);
    free(source->profile);
    free(source->url);
    free(source->ca_bundle);
    secret_free(source->token);
    free(source->token_file);
    free(source->role_arn);
    free(source->session_name);
    s3_http_free(source->http);
    free(source);
    return NULL;
}

void s3_source_cancel(S3Source *source)
{
    if (source->http)
        s3_http_cancel(source->http);
}

int s3_source_fetch(S3Source *source, S3Fetched *ret, Error *err)
{
    Error own = ERROR_INIT;
    int r;

    explicit_bzero(ret, sizeof(*ret));
    switch (source->kind) {
    case S3_SOURCE_ENVIRONMENT:
        r = fetch_environment(source, &ret->credentials, &own);
        break;
    case S3_SOURCE_WEB_IDENTITY:
        r = source_fetch_web_identity(source, ret, &own);
        break;
    case S3_SOURCE_PROFILE:
        r = fetch_profile(source, &ret->credentials, &own);
        break;
    case S3_SOURCE_CONTAINER:
        r = source_fetch_container(source, ret, &own);
        break;
    case S3_SOURCE_INSTANCE:
        r = source_fetch_instance(source, ret, &own);
        break;
    case S3_SOURCE_NONE:
    default:
        r = error_set(
            &own, -EACCES,
            "none are set up: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile "
            "in ~/.aws/credentials, or give this machine a role");
    }
    if (r >= 0) {
        source->answered = true;
        return r;
    }
    source_take_out(source, own.text); /* the error may quote a secret that was sent */
    return error_set(err, r, "%s", own.text);
}
