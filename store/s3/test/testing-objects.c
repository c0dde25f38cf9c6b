/* SPDX-License-Identifier: Apache-2.0 */
/* testing-objects.c - see testing-objects.h. s3_begin() serves each request at once. */
#include "store/s3/test/testing-objects.h"

#include "base/clock.h"
#include "store/s3/s3-internal.h"
#include "store/s3/test/testing-shelf.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <string.h>

typedef struct Break {
    FakeKind kind;
    size_t at; /* value of fake.n[kind] at which the request fails; 0: every request fails */
    FakeFault fault;
} Break;

static struct S3Client {
    unsigned references;
    pthread_t thread;
} client;

FakeServer fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Break breaks[32];
static size_t n_breaks, n_stalled, n_tellings;
static S3Request *tellings[4096]; /* requests whose `done` must be called */
static bool closing;

/* ---- requests ---- */

static const char *pair(const S3Pair *pairs, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(pairs[i].name, name) == 0)
            return pairs[i].value ? pairs[i].value : "";
    return NULL;
}

static const char *query(const S3Request *q, const char *name)
{
    return pair(q->query, q->n_query, name);
}

static const char *header(const S3Request *q, const char *name)
{
    return pair(q->headers, q->n_headers, name);
}

static FakeKind kind_of(const S3Request *q)
{
    switch (q->method) {
    case S3_GET:
        return q->key[0] ? FAKE_GET : query(q, "uploads") ? FAKE_UPLOADS : FAKE_LIST;
    case S3_HEAD:
        return FAKE_HEAD;
    case S3_PUT:
        return query(q, "partNumber") ? FAKE_PART : FAKE_PUT;
    case S3_POST:
        return query(q, "uploads")  ? FAKE_CREATE
               : query(q, "delete") ? FAKE_DELETE_MANY
                                    : FAKE_COMPLETE;
    case S3_DELETE:
        return query(q, "uploadId") ? FAKE_ABORT : FAKE_DELETE;
    }
    abort();
}

static void refuse(S3Request *q, int result, long status, const char *code)
{
    q->status = status;
    (void)snprintf(q->refusal.code, sizeof(q->refusal.code), "%s", code);
    q->result = error_set(&q->error, result, "%s: %ld %s", q->key, status, code);
}

static void good(S3Request *q)
{
    q->result = 0;
    q->status = 200;
    q->refusal.code[0] = '\0';
}

static void text(S3Request *q, char *data, size_t n_bytes)
{
    shelf_check(n_bytes <= q->text_max, "a text that is too long");
    q->text = data;
    q->n_text = n_bytes;
    good(q);
}

static char *gather(const S3Request *q, size_t *ret_bytes)
{
    size_t n_bytes = 0, at = 0;
    for (size_t i = 0; i < q->n_body; i++)
        n_bytes += q->body[i].iov_len;
    char *data = malloc(n_bytes + 1);
    for (size_t i = 0; i < q->n_body; at += q->body[i++].iov_len)
        if (q->body[i].iov_len > 0)
            memcpy(data + at, q->body[i].iov_base, q->body[i].iov_len);
    data[n_bytes] = '\0';
    *ret_bytes = n_bytes;
    return data;
}

static void set_etag(S3Request *q, unsigned version)
{
    (void)snprintf(q->reply.etag, sizeof(q->reply.etag), "v%u", version);
}

/* Returns whether If-None-Match allows the request. */
static bool is_absent(S3Request *q, bool ignores)
{
    if (!header(q, "If-None-Match") || ignores)
        return true;
    if (fake.if_absent == ABSENT_REFUSED)
        refuse(q, -EOPNOTSUPP, 501, "NotImplemented");
    else if (shelf_find(q->key))
        refuse(q, -EEXIST, 412, "PreconditionFailed");
    else
        return true;
    return false;
}

static const char *mark_of(const S3Request *q)
{
    const char *mark = header(q, S3_PUT_MARK_HEADER);
    return mark ? mark : "";
}

static void serve_put(S3Request *q)
{
    if (fake.checks_crc32c && header(q, "x-amz-checksum-crc32c")) {
        refuse(q, fake.says_bad_digest ? -EHOSTUNREACH : -EIO, 400,
               fake.says_bad_digest ? "BadDigest" : "InvalidRequest");
        return;
    }
    if (!is_absent(q, fake.if_absent == ABSENT_IGNORED))
        return;
    size_t n_bytes;
    char *data = gather(q, &n_bytes);
    shelf_put(q->key, mark_of(q), data, n_bytes);
    set_etag(q, shelf.serial);
    good(q);
}

static ShelfUpload *the_upload(S3Request *q)
{
    const char *id = query(q, "uploadId");
    for (size_t i = 0; i < shelf.n_uploads; i++)
        if (shelf.uploads[i].id == (unsigned)atoi(id) && strcmp(shelf.uploads[i].name, q->key) == 0)
            return &shelf.uploads[i];
    refuse(q, -ENOENT, 404, "NoSuchUpload");
    return NULL;
}

static void serve_create(S3Request *q)
{
    shelf_check(!!header(q, "x-amz-checksum-algorithm") == fake.sends_crc32c,
                "algorithm and checksums");
    ShelfUpload *upload = shelf_begin_upload(q->key, mark_of(q), clock_realtime_usec());
    char *body;
    int n = asprintf(&body,
                     "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key>"
                     "<UploadId>%u</UploadId></InitiateMultipartUploadResult>",
                     upload->id);
    text(q, body, (size_t)n);
}

static void serve_part(S3Request *q)
{
    ShelfUpload *upload = the_upload(q);
    if (!upload)
        return;
    size_t number = (size_t)atoi(query(q, "partNumber"));
    if (number > upload->n_parts) {
        upload->parts = reallocarray(upload->parts, number, sizeof(*upload->parts));
        memset(upload->parts + upload->n_parts, 0,
               (number - upload->n_parts) * sizeof(*upload->parts));
        upload->n_parts = number;
    }
    ShelfObject *part = &upload->parts[number - 1];
    free(part->data);
    part->data = gather(q, &part->n_bytes);
    part->version = ++shelf.serial;
    if (q->checksum && fake.sends_crc32c) /* the completion must repeat this checksum */
        (void)snprintf(q->sent_crc32c, sizeof(q->sent_crc32c), "crc");
    fake.part_bytes_least = MIN(fake.part_bytes_least, part->n_bytes);
    fake.part_bytes_most = MAX(fake.part_bytes_most, part->n_bytes);
    set_etag(q, part->version);
    good(q);
}

static void serve_complete(S3Request *q)
{
    ShelfUpload *upload = the_upload(q);
    if (!upload || !is_absent(q, fake.complete_ignores_absent))
        return;
    size_t n_asked, n_bytes = 0;
    char *asked = gather(q, &n_asked);
    (void)snprintf(fake.complete_body, sizeof(fake.complete_body), "%s", asked);
    static const char end[] = "</CompleteMultipartUpload>";
    shelf_check(strncmp(asked, "<CompleteMultipartUpload xmlns=", 31) == 0 &&
                    strcmp(asked + n_asked - strlen(end), end) == 0,
                "a body that is no <CompleteMultipartUpload>");
    const char *at = asked;
    for (size_t i = 0; i < upload->n_parts; i++) {
        char expected[160];
        int n = snprintf(expected, sizeof(expected),
                         "<PartNumber>%zu</PartNumber><ETag>&quot;v%u&quot;</ETag>%s</Part>", i + 1,
                         upload->parts[i].version,
                         fake.sends_crc32c ? "<ChecksumCRC32C>crc</ChecksumCRC32C>" : "");
        at = strstr(at, expected);
        shelf_check(at && n > 0, "a part is missing in what completes");
        n_bytes += upload->parts[i].n_bytes;
    }
    shelf_check(!strstr(at + 1, "<PartNumber>"), "too many parts in what completes");
    free(asked);
    char *data = malloc(n_bytes + 1);
    n_bytes = 0;
    for (size_t i = 0; i < upload->n_parts; n_bytes += upload->parts[i++].n_bytes)
        memcpy(data + n_bytes, upload->parts[i].data, upload->parts[i].n_bytes);
    shelf_put(q->key, upload->mark, data, n_bytes);
    shelf_drop_upload(upload);
    char *body = strdup(" <CompleteMultipartUploadResult><ETag>\"x-1\"</ETag>"
                        "</CompleteMultipartUploadResult>");
    text(q, body, strlen(body));
}

static void serve_get(S3Request *q)
{
    const ShelfObject *object = shelf_find(q->key);
    if (!object) {
        refuse(q, -ENOENT, 404, q->method == S3_HEAD ? "" : "NoSuchKey");
        return;
    }
    set_etag(q, object->version);
    (void)snprintf(q->reply.mark, sizeof(q->reply.mark), "%s", object->mark);
    if (fake.etag)
        (void)snprintf(q->reply.etag, sizeof(q->reply.etag), "%s", fake.etag);
    q->reply.etag_opaque = fake.etag_opaque;
    q->reply.has_length = !fake.says_no_length;
    q->reply.length = object->n_bytes;
    if (q->method == S3_HEAD) {
        good(q);
    } else if (q->buffer && q->offset >= object->n_bytes) {
        refuse(q, -EIO, 416, "InvalidRange");
    } else if (q->buffer && q->n_bytes > object->n_bytes - q->offset) {
        refuse(q, -EIO, 206, "");
    } else if (q->buffer) {
        memcpy(q->buffer, object->data + q->offset, q->n_bytes);
        good(q);
    } else if (object->n_bytes > q->text_max) {
        refuse(q, -EFBIG, 200, "");
    } else if (object->n_bytes > 0) { /* an empty object has no text */
        char *data = malloc(object->n_bytes + 1);
        memcpy(data, object->data, object->n_bytes);
        data[object->n_bytes] = '\0';
        text(q, data, object->n_bytes);
    } else {
        good(q);
    }
}

/* ---- lists ---- */

static int compare_objects(const void *a, const void *b)
{
    return strcmp(((const ShelfObject *)a)->name, ((const ShelfObject *)b)->name);
}

static bool encodes(const S3Request *q)
{
    return query(q, "encoding-type") && !fake.lacks_encoding;
}

static void put_name(FILE *out, const S3Request *q, const char *name)
{
    _cleanup_free_ char *encoded = encodes(q) ? sign_encode(name, true) : NULL;
    s3_xml_escape(out, encoded ?: name);
}

static void serve_list(S3Request *q)
{
    const char *prefix = query(q, "prefix");
    const char *after = fake.stands_still ? NULL : query(q, "continuation-token");
    size_t size, n = 0;
    char *body;
    FILE *out = open_memstream(&body, &size);
    qsort(shelf.objects, shelf.n_objects, sizeof(*shelf.objects), compare_objects);
    fprintf(out, "<ListBucketResult>%s", encodes(q) ? "<EncodingType>url</EncodingType>" : "");
    const char *last = NULL;
    for (size_t i = 0; i < shelf.n_objects; i++) {
        if (strncmp(shelf.objects[i].name, prefix, strlen(prefix)) != 0 ||
            (after && strcmp(shelf.objects[i].name, after) <= 0))
            continue;
        if (n++ == fake.page)
            break;
        last = shelf.objects[i].name;
        fputs("<Contents><Key>", out);
        put_name(out, q, last);
        fprintf(out,
                "</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
                "<ETag>&quot;v%u&quot;</ETag><Size>%zu</Size></Contents>",
                shelf.objects[i].version, shelf.objects[i].n_bytes);
    }
    fprintf(out, "<IsTruncated>%s</IsTruncated>", n > fake.page ? "true" : "false");
    if (n > fake.page) {
        fputs("<NextContinuationToken>", out);
        if (last)
            s3_xml_escape(out, last);
        else
            fprintf(out, "%zu", fake.n[FAKE_LIST]);
        fputs("</NextContinuationToken>", out);
    }
    fputs("</ListBucketResult>", out);
    shelf_check(fclose(out) == 0, "memory");
    text(q, body, size);
}

/* Lists uploads in the order of their ids, as if all had the same key. */
static void serve_uploads(S3Request *q)
{
    const char *prefix = query(q, "prefix"), *after = query(q, "upload-id-marker");
    size_t size, n = 0;
    unsigned last = after ? (unsigned)atoi(after) : 0;
    char *body;
    FILE *out = open_memstream(&body, &size);
    fprintf(out, "<ListMultipartUploadsResult>%s",
            encodes(q) ? "<EncodingType>url</EncodingType>" : "");
    const ShelfUpload *found = NULL;
    for (;;) {
        const ShelfUpload *next = NULL;
        for (size_t i = 0; i < shelf.n_uploads; i++)
            if ((fake.ignores_prefix ||
                 strncmp(shelf.uploads[i].name, prefix, strlen(prefix)) == 0) &&
                shelf.uploads[i].id > last && (!next || shelf.uploads[i].id < next->id))
                next = &shelf.uploads[i];
        if (!next || n++ == fake.page)
            break;
        found = next;
        last = next->id;
        time_t begun = (time_t)(next->begun_usec / USEC_PER_SEC);
        struct tm tm;
        char when[40];
        (void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S.000Z", gmtime_r(&begun, &tm));
        fputs("<Upload><Key>", out);
        put_name(out, q, next->name);
        fprintf(out, "</Key><UploadId>%u</UploadId><Initiated>%s</Initiated></Upload>", next->id,
                when);
    }
    bool more = n > fake.page;
    fprintf(out, "<IsTruncated>%s</IsTruncated>", more ? "true" : "false");
    if (more && found) {
        fputs("<NextKeyMarker>", out);
        put_name(out, q, found->name);
        fprintf(out, "</NextKeyMarker><NextUploadIdMarker>%u</NextUploadIdMarker>", found->id);
    }
    fputs("</ListMultipartUploadsResult>", out);
    shelf_check(fclose(out) == 0, "memory");
    q->reply.date = (int64_t)(clock_realtime_usec() / USEC_PER_SEC) + fake.ahead_sec;
    text(q, body, size);
}

/* ---- deletions ---- */

static void serve_delete(S3Request *q)
{
    ShelfObject *object = shelf_find(q->key);
    if (object)
        shelf_take(object);
    good(q);
}

/* S3 refuses DeleteObjects without the MD5 of its body. */
static void check_deletion(const S3Request *q, const char *body, size_t n_bytes)
{
    unsigned char digest[EVP_MAX_MD_SIZE], md5[2 * EVP_MAX_MD_SIZE];
    unsigned n = 0;
    shelf_check(EVP_Digest(body, n_bytes, digest, &n, EVP_md5(), NULL) == 1, "no MD5");
    (void)EVP_EncodeBlock(md5, digest, (int)n);
    const char *said = header(q, "Content-MD5");
    shelf_check(said && strcmp(said, (char *)md5) == 0, "DeleteObjects without its Content-MD5");
    static const char end[] = "</Delete>";
    shelf_check(strncmp(body, "<Delete xmlns=", 14) == 0 && strstr(body, "<Quiet>true</Quiet>") &&
                    strcmp(body + n_bytes - strlen(end), end) == 0,
                "a body that is no <Delete>");
}

static void serve_delete_many(S3Request *q)
{
    size_t n_bytes, n = 0;
    if (fake.lacks_delete_many) {
        refuse(q, -EOPNOTSUPP, 501, "NotImplemented");
        return;
    }
    char *body = gather(q, &n_bytes);
    check_deletion(q, body, n_bytes);
    for (char *at = body; (at = strstr(at, "<Key>")); n++) {
        char *end = strstr(at, "</Key>");
        *end = '\0';
        ShelfObject *object = shelf_find(at + 5);
        if (object)
            shelf_take(object);
        at = end + 1;
    }
    shelf_check(n <= 1000, "too many keys at once");
    free(body);
    char *answer = strdup("<DeleteResult></DeleteResult>");
    text(q, answer, strlen(answer));
}

static void serve_abort(S3Request *q)
{
    ShelfUpload *upload = the_upload(q);
    if (upload) {
        shelf_drop_upload(upload);
        good(q);
    }
}

static void serve(S3Request *q, FakeKind kind)
{
    free(q->text);
    q->text = NULL;
    q->n_text = 0;
    q->tries++;
    static void (*const serves[FAKE_KINDS])(S3Request *) = {[FAKE_PUT] = serve_put,
                                                            [FAKE_PART] = serve_part,
                                                            [FAKE_CREATE] = serve_create,
                                                            [FAKE_COMPLETE] = serve_complete,
                                                            [FAKE_ABORT] = serve_abort,
                                                            [FAKE_HEAD] = serve_get,
                                                            [FAKE_GET] = serve_get,
                                                            [FAKE_LIST] = serve_list,
                                                            [FAKE_UPLOADS] = serve_uploads,
                                                            [FAKE_DELETE] = serve_delete,
                                                            [FAKE_DELETE_MANY] = serve_delete_many};
    if (fake.lacks_bucket)
        refuse(q, -ENOENT, 404, q->method == S3_HEAD ? "" : "NoSuchBucket");
    else
        serves[kind](q);
}

/* ---- faults ---- */

static void serve_badly(S3Request *q, FakeKind kind, FakeFault fault)
{
    static const char error[] = "<Error><Code>InternalError</Code><Message>m</Message></Error>";
    switch (fault) {
    case FAKE_LOSE:
        serve(q, kind);
        serve(q, kind);
        break;
    case FAKE_LOSE_ALL:
        serve(q, kind);
        free(q->text);
        q->text = NULL;
        __attribute__((fallthrough));
    case FAKE_SILENT:
        q->unknown = true;
        refuse(q, -EHOSTUNREACH, 0, "");
        break;
    case FAKE_CONFLICT:
        refuse(q, -EAGAIN, 409, "ConditionalRequestConflict");
        break;
    case FAKE_ERROR_200:
        text(q, strdup(fake.text ? fake.text : error), strlen(fake.text ? fake.text : error));
        break;
    case FAKE_CUT:
        serve(q, kind);
        q->n_text /= 2;
        break;
    case FAKE_NO_UPLOAD:
        shelf_drop_upload(the_upload(q));
        serve(q, kind);
        break;
    case FAKE_DENY:
        refuse(q, -EACCES, 403, "AccessDenied");
        break;
    case FAKE_CHANGE:
        shelf_find(q->key)->version = ++shelf.serial; /* only the version changes, not the bytes */
        serve(q, kind);
        break;
    case FAKE_STALL:
        q->result = 1; /* 1: the request is in progress */
        n_stalled++;
        break;
    case FAKE_REFUSE:
        refuse(q, fake.refusal.r, fake.refusal.status, fake.refusal.code);
        break;
    case FAKE_RIVAL:
        shelf_put(q->key, "a rival's", strdup("rival"), 5);
        serve(q, kind);
        break;
    }
}

/* Calls `done` of ended requests, in place of the client's thread. */
static void *tell(_unused_ void *argument)
{
    (void)pthread_mutex_lock(&lock); /* cannot fail for a default mutex */
    for (;;) {
        while (n_tellings == 0 && !closing)
            (void)pthread_cond_wait(&changed, &lock); /* cannot fail */
        if (n_tellings == 0)
            break;
        S3Request *q = tellings[--n_tellings];
        (void)pthread_mutex_unlock(&lock); /* cannot fail */
        q->done(q);
        (void)pthread_mutex_lock(&lock); /* cannot fail */
    }
    (void)pthread_mutex_unlock(&lock); /* cannot fail */
    return NULL;
}

/* Signals that a request has ended, or has stalled, for a test that waits for a stall. */
static void ended(S3Request *q)
{
    shelf_check(n_tellings < ELEMENTSOF(tellings), "too many requests");
    if (q->done && q->result != 1)
        tellings[n_tellings++] = q;
    (void)pthread_cond_broadcast(&changed); /* cannot fail */
}

void s3_begin(_unused_ S3Client *c, S3Request *q)
{
    (void)pthread_mutex_lock(&lock); /* cannot fail for a default mutex */
    FakeKind kind = kind_of(q);
    fake.n[kind]++;
    if (fake.on_request)
        fake.on_request(kind, q);
    const Break *found = NULL;
    for (size_t i = 0; i < n_breaks && !found; i++)
        if (breaks[i].kind == kind && (breaks[i].at == 0 || breaks[i].at == fake.n[kind]))
            found = &breaks[i];
    if (found)
        serve_badly(q, kind, found->fault);
    else
        serve(q, kind);
    ended(q);
    (void)pthread_mutex_unlock(&lock); /* cannot fail */
}

int s3_wait(_unused_ S3Client *c, S3Request *q, Error *err)
{
    (void)pthread_mutex_lock(&lock); /* cannot fail for a default mutex */
    while (q->result == 1 && !(q->stop && atomic_load(q->stop))) {
        struct timespec soon;
        (void)clock_gettime(CLOCK_REALTIME, &soon); /* cannot fail */
        soon.tv_nsec += 1000000;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&changed, &lock, &soon); /* `stop` is checked every time */
    }
    if (q->result == 1)
        refuse(q, -ECANCELED, 0, "");
    (void)pthread_mutex_unlock(&lock); /* cannot fail */
    if (q->result < 0 && err)
        *err = q->error;
    return q->result;
}

void s3_cancel(_unused_ S3Client *c, S3Request *q)
{
    (void)pthread_mutex_lock(&lock); /* cannot fail for a default mutex */
    if (q->result == 1) {
        refuse(q, -ECANCELED, 0, "");
        ended(q);
    }
    (void)pthread_mutex_unlock(&lock); /* cannot fail */
}

int s3_do(S3Client *c, S3Request *q, Error *err)
{
    s3_begin(c, q);
    return s3_wait(c, q, err);
}

/* ---- the rest of client.h ---- */

int s3_client_open(_unused_ const S3Options *options, S3Client **ret, _unused_ Error *err)
{
    if (client.references++ == 0) {
        closing = false;
        shelf_check(pthread_create(&client.thread, NULL, tell, NULL) == 0, "no thread");
    }
    *ret = &client;
    return 0;
}

S3Client *s3_client_close(S3Client *c)
{
    if (!c || --c->references > 0)
        return NULL;
    (void)pthread_mutex_lock(&lock); /* cannot fail for a default mutex */
    closing = true;
    (void)pthread_cond_broadcast(&changed); /* cannot fail */
    (void)pthread_mutex_unlock(&lock);      /* cannot fail */
    (void)pthread_join(c->thread, NULL);    /* the thread was not joined yet */
    return NULL;
}

const S3Options *s3_client_options(_unused_ const S3Client *c) { return &fake.options; }

void s3_client_set_checksum(_unused_ S3Client *c, bool knows_crc32c)
{
    (void)pthread_mutex_lock(&lock); /* cannot fail for a default mutex */
    fake.sends_crc32c = knows_crc32c;
    (void)pthread_mutex_unlock(&lock); /* cannot fail */
}

/* ---- functions for tests ---- */

void fake_reset(void)
{
    static unsigned site;
    static char endpoint[40];
    while (shelf.n_objects > 0)
        shelf_take(&shelf.objects[0]);
    while (shelf.n_uploads > 0)
        shelf_drop_upload(&shelf.uploads[0]);
    n_breaks = n_stalled = 0;
    /* Each server has a name of its own, so it was not probed before. */
    (void)snprintf(endpoint, sizeof(endpoint), "http://fake-%u", ++site);
    fake = (FakeServer){.options = {.endpoint = endpoint,
                                    .part_bytes = 1000,
                                    .connections = 8,
                                    .memory_bytes = 16000,
                                    .deadline_usec = 20 * USEC_PER_SEC,
                                    .stall_usec = USEC_PER_SEC},
                        .page = 1000,
                        .part_bytes_least = UINT64_MAX};
}

void fake_break(FakeKind kind, size_t at, FakeFault fault)
{
    shelf_check(n_breaks < ELEMENTSOF(breaks), "too many faults");
    breaks[n_breaks++] = (Break){kind, at > 0 ? fake.n[kind] + at : 0, fault};
}

void fake_mend(void) { n_breaks = 0; }

void fake_wait_stalled(void)
{
    (void)pthread_mutex_lock(&lock); /* cannot fail for a default mutex */
    while (n_stalled == 0)
        (void)pthread_cond_wait(&changed, &lock); /* cannot fail */
    (void)pthread_mutex_unlock(&lock);            /* cannot fail */
}

void fake_put(const char *name, const char *data)
{
    shelf_put(name, "", strdup(data), strlen(data));
}
void fake_begin_upload(const char *name, uint64_t begun_usec)
{
    (void)shelf_begin_upload(name, "", begun_usec);
}

bool fake_has(const char *name) { return shelf_find(name); }
size_t fake_n_objects(void) { return shelf.n_objects; }
size_t fake_n_uploads(void) { return shelf.n_uploads; }
