/* SPDX-License-Identifier: Apache-2.0 */
/* multipart.c - uploads an object in parts: creates the upload, sends the parts concurrently, completes it.
 *
 * All parts except the last have the same size (R2 requires this). The server has a fixed cost per part,
 * so a large object has a few large parts rather than many.
 * The bodies of the parts are slices of the caller's iovecs. If any step fails, the upload is aborted; if the
 * server cannot be reached for that, a sweep aborts it later.
 *
 * If the answer to the creation was lost and the creation was tried again, there may be another upload with an
 * unknown id. Then all uploads of this name that began meanwhile are aborted. If one of these
 * uploads belongs to another writer of the same name, that writer finds no upload, and starts again.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "store/s3/s3-internal.h"

#include <string.h>

enum {
    PARTS_ENOUGH = 8, /* target number of parts, unless a part would exceed PART_BYTES_MOST */
    /* Limits the cost of a retry. A part is larger only if the options or S3_PARTS_MAX require it. */
    PART_BYTES_MOST = 64 << 20,
    WINDOW_MAX = 64,
    ABORT_SEC = 10,
    REPLY_MAX = 64 << 10,
};

bool s3_is_multipart(const S3Options *options, uint64_t n_bytes)
{
    return n_bytes > MIN(2 * options->part_bytes, S3_WHOLE_MAX);
}

int s3_part_bytes(const S3Options *options, uint64_t n_bytes, uint64_t *ret, Error *err)
{
    const uint64_t round = UINT64_C(1) << 20;
    const uint64_t few = MIN(n_bytes / PARTS_ENOUGH, (uint64_t)PART_BYTES_MOST) / round * round;
    uint64_t part =
        MAX(MAX(options->part_bytes, few), DIV_ROUND_UP(n_bytes, (uint64_t)S3_PARTS_MAX));
    if (part > options->part_bytes)
        part = ROUND_UP(part, round);
    if (part > S3_WHOLE_MAX)
        return error_set(err, -EFBIG, "%llu bytes are more than %d parts of 5 GiB",
                         (unsigned long long)n_bytes, S3_PARTS_MAX);
    *ret = part;
    return 0;
}

typedef struct PartDone {
    char etag[STORE_VERSION_MAX];
    char crc32c[S3_CRC32C_BYTES]; /* "": the part was sent without a checksum */
} PartDone;

/* A part that is being sent. */
typedef struct PartSlot {
    S3Request request;
    struct iovec *body;
    size_t n_body;
    char number[12];
    S3Pair query[2];
} PartSlot;

typedef struct Upload {
    S3Put *put;
    char *id;
    uint64_t part_bytes, begun_usec;
    size_t n_parts, window;
    PartDone *done;
    PartSlot *slots;
    bool orphan; /* there may be another upload with an unknown id */
} Upload;

static int out_of_memory(const S3Put *put, Error *err)
{
    return error_set(err, -ENOMEM, "out of memory writing %s/%s", put->s3->store.uri, put->key);
}

/* Sets the error of a failed request of the upload. -EAGAIN: the upload does not exist any more. */
static int refuse_part(const S3Put *put, const S3Request *request, Error *err)
{
    if (request->result == -ENOENT && strcmp(request->refusal.code, "NoSuchBucket") != 0)
        return error_set(err, -EAGAIN, "cannot write %s/%s: its upload is gone", put->s3->store.uri,
                         put->key);
    return s3_refuse(put->s3, put->key, request, "write", err);
}

/* Returns n_bytes of the body from `offset` on, as iovecs; the caller frees them. */
static struct iovec *slice(const S3Put *put, uint64_t offset, uint64_t n_bytes, size_t *ret_n)
{
    uint64_t at = 0;
    size_t first = 0, n = 0;
    while (at + put->parts[first].iov_len <= offset)
        at += put->parts[first++].iov_len;
    struct iovec *body = calloc(put->n_parts - first, sizeof(*body));
    for (size_t i = first; body && n_bytes > 0; i++) {
        const size_t skip = (size_t)(MAX(offset, at) - at);
        const size_t take = (size_t)MIN(put->parts[i].iov_len - skip, n_bytes);
        at += put->parts[i].iov_len;
        if (take > 0)
            body[n++] = (struct iovec){(char *)put->parts[i].iov_base + skip, take};
        n_bytes -= take;
    }
    *ret_n = n;
    return body;
}

/* ---- the parts ---- */

static int part_begin(Upload *u, size_t index, Error *err)
{
    const S3Put *put = u->put;
    PartSlot *slot = &u->slots[index % u->window];
    assert(index < u->n_parts && !slot->body);
    const uint64_t offset = index * u->part_bytes;
    const uint64_t n_bytes = MIN(u->part_bytes, put->n_bytes - offset);
    *slot = (PartSlot){0};
    slot->body = slice(put, offset, n_bytes, &slot->n_body);
    if (!slot->body)
        return out_of_memory(put, err);
    (void)snprintf(slot->number, sizeof(slot->number), "%zu", index + 1);
    slot->query[0] = (S3Pair){"partNumber", slot->number};
    slot->query[1] = (S3Pair){"uploadId", u->id};
    slot->request = (S3Request){
        .method = S3_PUT,
        .bucket = put->s3->bucket,
        .key = put->name.text,
        .query = slot->query,
        .n_query = ELEMENTSOF(slot->query),
        .body = slot->body,
        .n_body = slot->n_body,
        .checksum = true,
        .repeatable = true,
        .stop = &put->s3->ending,
        .deadline_usec = s3_deadline(put->s3, n_bytes),
    };
    s3_begin(put->s3->client, &slot->request);
    return 0;
}

static int part_end(Upload *u, size_t index, Error *err)
{
    const S3Put *put = u->put;
    PartSlot *slot = &u->slots[index % u->window];
    S3Request *request = &slot->request;
    int r = s3_wait(put->s3->client, request, NULL);
    if (r < 0)
        r = refuse_part(put, request, err);
    else if (!request->reply.etag[0])
        r = error_set(err, -EIO, "cannot write %s/%s: the server gives no ETag to part %zu",
                      put->s3->store.uri, put->key, index + 1);
    if (r == 0) {
        PartDone *done = &u->done[index];
        memcpy(done->etag, request->reply.etag, sizeof(done->etag));
        memcpy(done->crc32c, request->sent_crc32c, sizeof(done->crc32c));
    }
    free(slot->body);
    slot->body = NULL;
    return r;
}

/* Sends the parts, at most `window` at the same time, and ends them in order. */
static int put_parts(Upload *u, Error *err)
{
    int r = 0;
    size_t begun = 0, ended = 0;
    while (r == 0 && ended < u->n_parts) {
        while (r == 0 && begun < MIN(ended + u->window, u->n_parts)) {
            r = part_begin(u, begun, err);
            begun += r == 0;
        }
        if (r == 0)
            r = part_end(u, ended++, err);
    }
    for (size_t i = ended; i < begun; i++)
        s3_cancel(u->put->s3->client, &u->slots[i % u->window].request);
    for (size_t i = ended; i < begun; i++)
        (void)part_end(u, i, NULL); /* cancelled, so its failure is not reported */
    return r;
}

/* ---- create, complete, abort ---- */

static int create(Upload *u, Error *err)
{
    const S3Put *put = u->put;
    S3Pair headers[2] = {{S3_PUT_MARK_HEADER, put->mark}};
    size_t n_headers = 1;
    if (put->can.checksum)
        headers[n_headers++] = (S3Pair){"x-amz-checksum-algorithm", "CRC32C"};
    const S3Pair query = {"uploads", NULL};
    S3Request request = {.method = S3_POST,
                         .bucket = put->s3->bucket,
                         .key = put->name.text,
                         .query = &query,
                         .n_query = 1,
                         .headers = headers,
                         .n_headers = n_headers,
                         .text_max = REPLY_MAX,
                         .repeatable = true, /* u->orphan tells that two uploads may exist */
                         .stop = &put->s3->ending};
    u->begun_usec = clock_boottime_usec();
    int r = s3_do(put->s3->client, &request, NULL);
    u->orphan = request.tries > 1 || request.unknown;
    if (r < 0)
        r = s3_refuse(put->s3, put->key, &request, "write", err);
    else if ((r = reply_upload_id(request.text, request.n_text, &u->id, err)) < 0)
        r = error_prefix(err, -EIO, "cannot write %s/%s", put->s3->store.uri, put->key);
    free(request.text);
    return r;
}

/* Writes <CompleteMultipartUpload>. ETags are escaped, as they may have any characters. */
static int complete_body(const Upload *u, char **ret, size_t *ret_bytes)
{
    FILE *out = open_memstream(ret, ret_bytes);
    if (!out)
        return -ENOMEM;
    (void)fputs("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", out);
    for (size_t i = 0; i < u->n_parts; i++) {
        const PartDone *part = &u->done[i];
        (void)fprintf(out, "<Part><PartNumber>%zu</PartNumber><ETag>&quot;", i + 1);
        s3_xml_escape(out, part->etag);
        (void)fputs("&quot;</ETag>", out);
        if (part->crc32c[0])
            (void)fprintf(out, "<ChecksumCRC32C>%s</ChecksumCRC32C>", part->crc32c);
        (void)fputs("</Part>", out);
    }
    (void)fputs("</CompleteMultipartUpload>", out);
    const bool failed = ferror(out) != 0;
    return fclose(out) != 0 || failed ? -ENOMEM : 0;
}

/* Completes the upload. -EAGAIN: the upload does not exist any more, maybe because it was completed and the answer was
 * lost; or a reply with status 200 had an error in its body. */
static int complete(Upload *u, Error *err)
{
    const S3Put *put = u->put;
    _cleanup_free_ char *body = NULL;
    size_t n_bytes;
    if (complete_body(u, &body, &n_bytes) < 0)
        return out_of_memory(put, err);
    const struct iovec part = {body, n_bytes};
    const S3Pair query = {"uploadId", u->id};
    const S3Pair headers[] = {{"Content-Type", "application/xml"}, {"If-None-Match", "*"}};
    const bool conditional = (put->flags & STORE_IF_ABSENT) && put->can.if_absent;
    S3Request request = {.method = S3_POST,
                         .bucket = put->s3->bucket,
                         .key = put->name.text,
                         .query = &query,
                         .n_query = 1,
                         .headers = headers,
                         .n_headers = conditional ? 2 : 1,
                         .body = &part,
                         .n_body = 1,
                         .text_max = REPLY_MAX,
                         .repeatable = true, /* a second request finds no upload */
                         .stop = &put->s3->ending};
    int r = s3_do(put->s3->client, &request, NULL);
    char etag[STORE_VERSION_MAX];
    if (r < 0)
        r = refuse_part(put, &request, err);
    else if (reply_complete(request.text, request.n_text, etag, err) < 0)
        r = error_prefix(err, -EAGAIN, "cannot write %s/%s", put->s3->store.uri, put->key);
    free(request.text);
    return r;
}

int s3_abort(S3Store *s3, const char *name, const char *id, Error *err)
{
    const S3Pair query = {"uploadId", id};
    S3Request request = {.method = S3_DELETE,
                         .bucket = s3->bucket,
                         .key = name,
                         .query = &query,
                         .n_query = 1,
                         .repeatable = true,
                         .deadline_usec = clock_boottime_usec() + ABORT_SEC * USEC_PER_SEC};
    int r = s3_do(s3->client, &request, err);
    return r == -ENOENT ? 0 : r;
}

/* ---- the whole upload ---- */

typedef struct Orphans {
    const Upload *upload;
    uint64_t age_usec; /* time since this put began to create its upload */
} Orphans;

static int abort_orphan(void *context, const ReplyEntry *found, int64_t server_date, Error *err)
{
    const Orphans *o = context;
    const S3Put *put = o->upload->put;
    const uint64_t now_usec =
        server_date > 0 ? (uint64_t)server_date * USEC_PER_SEC : clock_realtime_usec();
    if (strcmp(found->key, put->name.text) != 0 ||
        (o->upload->id && strcmp(found->id, o->upload->id) == 0) ||
        /* The two seconds are there because both times are in whole seconds. */
        found->usec + o->age_usec + 2 * USEC_PER_SEC < now_usec)
        return 0;
    return s3_abort(put->s3, found->key, found->id, err);
}

/* Tries to abort uploads with unknown ids; a sweep aborts the rest. */
static void abort_orphans(const Upload *u)
{
    Orphans o = {.upload = u, .age_usec = clock_boottime_usec() - u->begun_usec};
    (void)s3_each_entry(u->put->s3, true, u->put->name.text, ABORT_SEC * USEC_PER_SEC, abort_orphan,
                        &o, NULL);
}

static int upload(Upload *u, Error *err)
{
    const S3Put *put = u->put;
    u->done = calloc(u->n_parts, sizeof(*u->done));
    u->slots = calloc(u->window, sizeof(*u->slots));
    if (!u->done || !u->slots)
        return out_of_memory(put, err);
    int r = create(u, err);
    if (r == 0)
        r = put_parts(u, err);
    if (r == 0 && ((r = fault("store.put.half")) < 0 || (r = fault("store.put.parts")) < 0))
        (void)error_errno(err, r, "cannot write %s/%s", put->s3->store.uri, put->key);
    return r == 0 ? complete(u, err) : r;
}

int s3_upload(S3Put *put, Error *err)
{
    Upload u = {.put = put};
    int r = s3_part_bytes(put->s3->options, put->n_bytes, &u.part_bytes, err);
    if (r < 0)
        return error_prefix(err, r, "cannot write %s/%s", put->s3->store.uri, put->key);
    u.n_parts = (size_t)DIV_ROUND_UP(put->n_bytes, u.part_bytes);
    u.window = MIN(u.n_parts, (size_t)MIN(put->s3->options->connections, (int64_t)WINDOW_MAX));
    r = upload(&u, err);
    if (r < 0 && u.id)
        (void)s3_abort(put->s3, put->name.text, u.id, NULL); /* else a later sweep does */
    if (u.orphan)
        abort_orphans(&u);
    free(u.id);
    free(u.done);
    free(u.slots);
    return r;
}
