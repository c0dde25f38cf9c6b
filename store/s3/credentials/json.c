/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - parses the answers of a container's endpoint and an instance's metadata. Pure.
 *
 * jansson's own error texts quote the bytes at the error, which may be the secret; so the texts here
 * give only the position. */
#include "base/json/json.h"
#include "base/memory.h"
#include "base/text/secret.h"
#include "store/s3/credentials/source.h"

#include <ctype.h>
#include <string.h>
#include <time.h>

int credentials_parse_time(const char *text, int64_t *ret)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!end)
        return -EINVAL;
    if (*end == '.')
        end += 1 + strspn(end + 1, "0123456789");
    if (strcmp(end, "Z") != 0 && strcmp(end, "+00:00") != 0)
        return -EINVAL;
    int64_t time = timegm(&tm);
    if (time <= 0)
        return -EINVAL;
    *ret = time;
    return 0;
}

int source_take(const S3Source *source, const char *what, const char *value, char *ret, size_t size,
                Error *err)
{
    if (!value || !*value)
        return error_set(err, -EACCES, "%s: %s is missing", source->name, what);
    size_t n = strlen(value);
    if (n >= size)
        return error_set(err, -EINVAL, "%s: %s is longer than %zu bytes", source->name, what,
                         size - 1);
    for (const char *p = value; *p; p++)
        if (*p <= 0x20 || *p >= 0x7f)
            return error_set(err, -EINVAL,
                             "%s: %s holds a space or a control character at byte %td",
                             source->name, what, p - value);
    memcpy(ret, value, n + 1);
    return 0;
}

void source_quote(const S3Source *source, const char *text, char *ret, size_t size)
{
    _cleanup_secret_ char *said = memory_text(text);
    for (char *p = said; *p; p++)
        *p = *p >= 0x20 && *p < 0x7f ? *p : '?';
    source_take_out(source, said);
    (void)snprintf(ret, size, "%s", said);
}

static const char *text_of(json_t *root, const char *key)
{
    return json_string_value(json_object_get(root, key)); /* NULL if the value is not a string */
}

static int refused(const S3Source *source, const char *code, const char *message, Error *err)
{
    char code_quoted[64], message_quoted[160];
    source_quote(source, code, code_quoted, sizeof(code_quoted));
    source_quote(source, message, message_quoted, sizeof(message_quoted));
    return error_set(err, -EACCES, "%s: %s%s%s", source->name, code_quoted, *message ? ": " : "",
                     message_quoted);
}

int credentials_parse_json(const S3Source *source, const char *text, size_t n_bytes,
                           S3Credentials *ret, Error *err)
{
    json_error_t e;
    _cleanup_json_ json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &e);
    if (!root)
        return error_set(err, -EACCES, "%s: it answered no JSON (line %d, column %d)", source->name,
                         e.line, e.column);
    if (!json_is_object(root))
        return error_set(err, -EACCES, "%s: it answered no JSON object", source->name);

    const char *code = text_of(root, "Code") ?: text_of(root, "code");
    const char *message = text_of(root, "Message") ?: text_of(root, "message");
    if (code && strcmp(code, "Success") != 0)
        return refused(source, code, message ?: "", err);

    ret->token[0] = '\0';
    ret->expires = 0;
    int r = source_take(source, "AccessKeyId", text_of(root, "AccessKeyId"), ret->access_key,
                        sizeof(ret->access_key), err);
    if (r >= 0)
        r = source_take(source, "SecretAccessKey", text_of(root, "SecretAccessKey"),
                        ret->secret_key, sizeof(ret->secret_key), err);
    if (r >= 0 && json_object_get(root, "Token"))
        r = source_take(source, "Token", text_of(root, "Token"), ret->token, sizeof(ret->token),
                        err);
    if (r < 0)
        return r;
    const char *expiration = text_of(root, "Expiration");
    if (expiration && credentials_parse_time(expiration, &ret->expires) < 0)
        return error_set(err, -EINVAL, "%s: Expiration is not a time like 2026-01-31T12:00:00Z",
                         source->name);
    return 0;
}
