/* SPDX-License-Identifier: Apache-2.0 */
/* sign.c - see sign.h. The names are those of AWS's specification: canonical request, string to sign,
 * scope, signing key. */
#include "store/s3/protocol/sign.h"

#include "base/memory.h"
#include "base/number/hash.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { KEY_BYTES = 32, DATE_BYTES = 8 /* as 20130524 */, OWN_HEADERS = 4 };

/* ---- URLs ---- */

static bool is_unreserved(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

char *sign_encode(const char *text, bool keep_slash)
{
    static const char digits[] = "0123456789ABCDEF";
    char *out = memory_zeroed(3 * strlen(text) + 1, 1), *to = out;
    for (const char *p = text; *p; p++) {
        if (is_unreserved(*p) || (keep_slash && *p == '/')) {
            *to++ = *p;
            continue;
        }
        *to++ = '%';
        *to++ = digits[(uint8_t)*p >> 4];
        *to++ = digits[(uint8_t)*p & 15];
    }
    return out;
}

typedef struct Encoded {
    char *name, *value;
} Encoded;

static int compare_encoded(const void *a, const void *b)
{
    const Encoded *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order ? order : strcmp(left->value, right->value);
}

/* Sorts by encoded name, then by encoded value. A sort of whole texts "name=value" would put "a-b=" before "a=". */
char *sign_query(const S3Pair *query, size_t n_query)
{
    _cleanup_free_ Encoded *pairs = memory_zeroed(n_query, sizeof(*pairs));
    size_t size = 1, n = 0;
    for (size_t i = 0; i < n_query; i++) {
        pairs[i].name = sign_encode(query[i].name, false);
        pairs[i].value = sign_encode(query[i].value ?: "", false);
        size += strlen(pairs[i].name) + strlen(pairs[i].value) + 2;
    }
    qsort(pairs, n_query, sizeof(*pairs), compare_encoded);
    char *out = memory_zeroed(size, 1);
    for (size_t i = 0; i < n_query; i++) {
        n += (size_t)snprintf(out + n, size - n, "%s%s=%s", i ? "&" : "", pairs[i].name,
                              pairs[i].value);
        free(pairs[i].name);
        free(pairs[i].value);
    }
    return out;
}

/* ---- hashes ---- */

static EVP_MD_CTX *sha256_free(EVP_MD_CTX *sha)
{
    EVP_MD_CTX_free(sha);
    return NULL;
}
DEFINE_CLEANUP(EVP_MD_CTX, sha256_free)

static EVP_MD_CTX *sha256_new(void)
{
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    return sha && EVP_DigestInit_ex(sha, EVP_sha256(), NULL) == 1 ? sha : sha256_free(sha);
}

static void sha256_add(EVP_MD_CTX *sha, const char *text, size_t n_bytes)
{
    int ok = EVP_DigestUpdate(sha, text, n_bytes);
    assert(ok == 1);
}

static void sha256_text(EVP_MD_CTX *sha, const char *text) { sha256_add(sha, text, strlen(text)); }

static void sha256_end(EVP_MD_CTX *sha, uint8_t ret[static KEY_BYTES])
{
    int ok = EVP_DigestFinal_ex(sha, ret, NULL);
    assert(ok == 1);
}

int sign_payload_hash(const struct iovec *parts, size_t n_parts, char ret[SIGN_HASH_BYTES])
{
    _cleanup_(sha256_freep) EVP_MD_CTX *sha = sha256_new();
    if (!sha)
        return -ENOMEM;
    for (size_t i = 0; i < n_parts; i++)
        sha256_add(sha, parts[i].iov_base, parts[i].iov_len);
    uint8_t digest[KEY_BYTES];
    sha256_end(sha, digest);
    (void)hash_format_bytes(digest, KEY_BYTES, ret);
    return 0;
}

static int hmac(const void *key, size_t n_key, const char *text, size_t n_text,
                uint8_t ret[static KEY_BYTES])
{
    return HMAC(EVP_sha256(), key, (int)n_key, (const uint8_t *)text, n_text, ret, NULL) ? 0
                                                                                         : -ENOMEM;
}

/* ---- headers ---- */

typedef struct Header {
    const char *name, *value;
    size_t order;
} Header;

/* A name must be a token of RFC 9110; a value must not have control characters. */
static bool is_header(const char *name, const char *value)
{
    if (!*name)
        return false;
    for (const char *p = name; *p; p++)
        if (!is_unreserved(*p))
            return false;
    for (const char *p = value; *p; p++)
        if ((uint8_t)*p < 0x20 || *p == 0x7f)
            return false;
    return true;
}

static int compare_headers(const void *a, const void *b)
{
    const Header *left = a, *right = b;
    int order = strcasecmp(left->name, right->name);
    return order ? order : (left->order > right->order) - (left->order < right->order);
}

static void sha256_lower(EVP_MD_CTX *sha, const char *text)
{
    for (; *text; text++) {
        char c = *text >= 'A' && *text <= 'Z' ? (char)(*text + 32) : *text;
        sha256_add(sha, &c, 1);
    }
}

/* Hashes a value without blanks at its ends, and with each inner run of blanks as one blank. */
static void sha256_trimmed(EVP_MD_CTX *sha, const char *value)
{
    const char *p = value + strspn(value, " ");
    while (*p) {
        size_t n_word = strcspn(p, " "), n_blank = strspn(p + n_word, " ");
        sha256_add(sha, p, n_word);
        p += n_word + n_blank;
        if (*p)
            sha256_add(sha, " ", 1);
    }
}

/* Hashes the headers; several headers of one name become one line. */
static void sha256_headers(EVP_MD_CTX *sha, const Header *headers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool again = i > 0 && strcasecmp(headers[i].name, headers[i - 1].name) == 0;
        bool more = i + 1 < n && strcasecmp(headers[i].name, headers[i + 1].name) == 0;
        if (!again) {
            sha256_lower(sha, headers[i].name);
            sha256_text(sha, ":");
        }
        sha256_trimmed(sha, headers[i].value);
        sha256_text(sha, more ? "," : "\n");
    }
}

static char *signed_names(const Header *headers, size_t n)
{
    size_t size = 1;
    for (size_t i = 0; i < n; i++)
        size += strlen(headers[i].name) + 1;
    char *out = memory_zeroed(size, 1), *to = out;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && strcasecmp(headers[i].name, headers[i - 1].name) == 0)
            continue;
        if (i > 0)
            *to++ = ';';
        for (const char *p = headers[i].name; *p; p++)
            *to++ = *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p;
    }
    return out;
}

/* Writes all headers to be signed, sorted, to `ret`, which has room for the caller's headers and OWN_HEADERS more. */
static int collect_headers(const SignRequest *request, const S3Credentials *credentials,
                           const char *service, const char *date, Header *ret, size_t *ret_n,
                           Error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < request->n_headers; i++)
        ret[n++] = (Header){request->headers[i].name, request->headers[i].value, 0};
    ret[n++] = (Header){"host", request->host, 0};
    ret[n++] = (Header){"x-amz-date", date, 0};
    if (strcmp(service, "s3") == 0)
        ret[n++] = (Header){"x-amz-content-sha256", request->payload_hash, 0};
    if (credentials->token[0])
        ret[n++] = (Header){"x-amz-security-token", credentials->token, 0};
    for (size_t i = 0; i < n; i++) {
        if (!is_header(ret[i].name, ret[i].value))
            return error_set(err, -EINVAL, "the header %.64s holds what no header may hold",
                             is_header(ret[i].name, "") ? ret[i].name : "?");
        ret[i].order = i;
    }
    qsort(ret, n, sizeof(*ret), compare_headers);
    *ret_n = n;
    return 0;
}

static int canonical_request(const SignRequest *request, const Header *headers, size_t n_headers,
                             const char *names, char ret_hash[static SIGN_HASH_BYTES])
{
    _cleanup_free_ char *query = sign_query(request->query, request->n_query);
    _cleanup_(sha256_freep) EVP_MD_CTX *sha = sha256_new();
    if (!sha)
        return -ENOMEM;

    const char *const lines[] = {request->method, request->path, query};
    for (size_t i = 0; i < ELEMENTSOF(lines); i++) {
        sha256_text(sha, lines[i]);
        sha256_text(sha, "\n");
    }
    sha256_headers(sha, headers, n_headers);
    sha256_text(sha, "\n");
    sha256_text(sha, names);
    sha256_text(sha, "\n");
    sha256_text(sha, request->payload_hash);

    uint8_t digest[KEY_BYTES];
    sha256_end(sha, digest);
    (void)hash_format_bytes(digest, KEY_BYTES, ret_hash);
    return 0;
}

/* ---- the signature ---- */

/* Derives the key: AWS4 + secret -> date -> region -> service -> aws4_request. The result is cached, so
 * this happens once a day. */
static int signing_key(const char *secret, const char *date, const char *region,
                       const char *service, SignCache *cache, uint8_t ret[static KEY_BYTES])
{
    _cleanup_(sha256_freep) EVP_MD_CTX *sha = sha256_new();
    if (!sha)
        return -ENOMEM;
    /* The NUL separates the secret from the next text. */
    sha256_add(sha, secret, strlen(secret) + 1);
    sha256_add(sha, date, DATE_BYTES);
    sha256_add(sha, region, strlen(region) + 1);
    sha256_add(sha, service, strlen(service) + 1);
    uint8_t scope[KEY_BYTES];
    sha256_end(sha, scope);

    if (!cache->valid || memcmp(cache->scope, scope, sizeof(scope)) != 0) {
        char first[4 + sizeof((S3Credentials){0}.secret_key)];
        int n = snprintf(first, sizeof(first), "AWS4%s", secret);
        uint8_t key[KEY_BYTES];
        int r = hmac(first, (size_t)n, date, DATE_BYTES, key);
        explicit_bzero(first, sizeof(first));
        const char *const steps[] = {region, service, "aws4_request"};
        for (size_t i = 0; i < ELEMENTSOF(steps) && r == 0; i++)
            r = hmac(key, sizeof(key), steps[i], strlen(steps[i]), key);
        if (r == 0) {
            memcpy(cache->key, key, sizeof(key));
            memcpy(cache->scope, scope, sizeof(scope));
            cache->valid = true;
        }
        explicit_bzero(key, sizeof(key));
        if (r < 0)
            return r;
    }
    memcpy(ret, cache->key, KEY_BYTES);
    return 0;
}

static int format_date(int64_t seconds, char ret[static 17])
{
    time_t t = (time_t)seconds;
    struct tm tm;
    if (seconds < 0 || !gmtime_r(&t, &tm) || tm.tm_year > 9999 - 1900)
        return -EINVAL;
    return strftime(ret, 17, "%Y%m%dT%H%M%SZ", &tm) == 16 ? 0 : -EINVAL;
}

static int authorize(const char *access_key, const char *scope, const char *date, const char *names,
                     const char *request_hash, const uint8_t key[static KEY_BYTES], char **ret)
{
    _cleanup_free_ char *text =
        memory_format("AWS4-HMAC-SHA256\n%s\n%s\n%s", date, scope, request_hash);
    uint8_t digest[KEY_BYTES];
    char signature[SIGN_HASH_BYTES];
    int r = hmac(key, KEY_BYTES, text, strlen(text), digest);
    if (r < 0)
        return r;
    (void)hash_format_bytes(digest, KEY_BYTES, signature);

    *ret = memory_format("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
                         access_key, scope, names, signature);
    return 0;
}

int sign_request(const SignRequest *request, const S3Credentials *credentials, const char *region,
                 const char *service, int64_t time, SignCache *cache, SignedRequest *ret,
                 Error *err)
{
    assert(request->path[0] == '/');
    SignedRequest out = {.authorization = NULL};
    if (format_date(time, out.date) < 0)
        return error_set(err, -EINVAL, "%lld is not time that a request can be signed at",
                         (long long)time);
    if (!is_header("authorization", credentials->access_key) || !is_header("authorization", region))
        return error_set(err, -EINVAL,
                         "the access key's id or the region holds a control character");

    _cleanup_free_ Header *headers =
        memory_zeroed(request->n_headers + OWN_HEADERS, sizeof(*headers));
    size_t n_headers = 0;
    int r = collect_headers(request, credentials, service, out.date, headers, &n_headers, err);
    if (r < 0)
        return r;

    _cleanup_free_ char *names = signed_names(headers, n_headers);
    _cleanup_free_ char *scope =
        memory_format("%.8s/%s/%s/aws4_request", out.date, region, service);
    char hash[SIGN_HASH_BYTES];
    uint8_t key[KEY_BYTES];
    r = canonical_request(request, headers, n_headers, names, hash);
    if (r == 0)
        r = signing_key(credentials->secret_key, out.date, region, service, cache, key);
    if (r == 0)
        r = authorize(credentials->access_key, scope, out.date, names, hash, key,
                      &out.authorization);
    explicit_bzero(key, sizeof(key));
    if (r < 0)
        return error_set(err, r, "out of memory signing a request");
    *ret = out;
    return 0;
}
