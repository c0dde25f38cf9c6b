/* SPDX-License-Identifier: Apache-2.0 */
/* delete.c - deletes one object, or a thousand with one request.
 *
 * If a request for many objects fails, or the server does not support such requests, the objects of the batch are
 * deleted one by one, so that each object's own error is reported.
 */
#include "store/s3/s3-internal.h"

#include <openssl/evp.h>
#include <string.h>

enum { BATCH = 1000, REPLY_MAX = 4 << 20 };

int s3_delete(Store *store, const char *key, Error *err)
{
    S3Store *s3 = s3_store(store);
    S3Name name;
    int r = s3_name(s3, key, &name, err);
    if (r < 0)
        return r;
    S3Request request = {.method = S3_DELETE,
                         .bucket = s3->bucket,
                         .key = name.text,
                         .repeatable = true};
    r = s3_do(s3->client, &request, NULL);
    if (r == 0 || (r == -ENOENT && strcmp(request.refusal.code, "NoSuchBucket") != 0))
        return 0;
    return s3_refuse(s3, key, &request, "remove", err);
}

void s3_xml_escape(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&':
            (void)fputs("&amp;", out);
            break;
        case '<':
            (void)fputs("&lt;", out);
            break;
        case '>':
            (void)fputs("&gt;", out);
            break;
        case '"':
            (void)fputs("&quot;", out);
            break;
        default:
            (void)fputc(*text, out);
        }
}

static int batch_body(const S3Store *s3, const char *const *keys, size_t n_keys, char **ret,
                      size_t *ret_bytes)
{
    FILE *out = open_memstream(ret, ret_bytes);
    if (!out)
        return -ENOMEM;
    (void)fputs("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>",
                out);
    for (size_t i = 0; i < n_keys; i++) {
        (void)fputs("<Object><Key>", out);
        s3_xml_escape(out, s3->prefix);
        s3_xml_escape(out, keys[i]);
        (void)fputs("</Key></Object>", out);
    }
    (void)fputs("</Delete>", out);
    const bool failed = ferror(out) != 0;
    return fclose(out) != 0 || failed ? -ENOMEM : 0;
}

/* Deletes up to a thousand objects with one request. -EBADMSG: the server does not support this, or did not
 * delete all objects. */
static int delete_batch(S3Store *s3, const char *const *keys, size_t n_keys, Error *err)
{
    _cleanup_free_ char *body = NULL;
    size_t n_bytes;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n_digest;
    char md5[2 * EVP_MAX_MD_SIZE];
    if (batch_body(s3, keys, n_keys, &body, &n_bytes) < 0)
        return error_set(err, -ENOMEM, "out of memory removing objects of %s", s3->store.uri);
    if (EVP_Digest(body, n_bytes, digest, &n_digest, EVP_md5(), NULL) != 1)
        return -EBADMSG; /* this machine forbids MD5 */
    EVP_EncodeBlock((unsigned char *)md5, digest, (int)n_digest);

    const struct iovec part = {body, n_bytes};
    const S3Pair query = {"delete", NULL};
    const S3Pair headers[] = {{"Content-MD5", md5}, {"Content-Type", "application/xml"}};
    S3Request request = {.method = S3_POST,
                         .bucket = s3->bucket,
                         .key = "",
                         .query = &query,
                         .n_query = 1,
                         .headers = headers,
                         .n_headers = ELEMENTSOF(headers),
                         .body = &part,
                         .n_body = 1,
                         .text_max = REPLY_MAX,
                         .repeatable = true};
    S3Error refused;
    char *key = NULL;
    int r = s3_do(s3->client, &request, NULL);
    if (r == -EHOSTUNREACH)
        (void)s3_refuse(s3, "", &request, "remove objects of", err);
    else if (r < 0 || reply_delete(request.text, request.n_text, &refused, &key, NULL) < 0 || key)
        r = -EBADMSG;
    free(request.text);
    free(key);
    return r;
}

int s3_delete_many(Store *store, const char *const *keys, size_t n_keys, Error *err)
{
    S3Store *s3 = s3_store(store);
    int first = 0;
    for (size_t at = 0; at < n_keys; at += BATCH) {
        const size_t n = MIN(n_keys - at, (size_t)BATCH);
        Error *told = first < 0 ? NULL : err;
        int r = n > 1 ? delete_batch(s3, keys + at, n, told) : -EBADMSG;
        for (size_t i = at; r == -EBADMSG && i < at + n; i++) {
            int q = s3_delete(store, keys[i], first < 0 ? NULL : err);
            first = first < 0 ? first : q;
            if (q == -EHOSTUNREACH)
                return first; /* each further deletion would wait as long */
        }
        if (r < 0 && r != -EBADMSG)
            return first < 0 ? first : r;
    }
    return first;
}
