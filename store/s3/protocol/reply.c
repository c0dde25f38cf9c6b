/* SPDX-License-Identifier: Apache-2.0 */
/* reply.c - parses the XML bodies of replies (reply.h).
 *
 * walk() calls a document's `leaf` at the end of each element with the element's path
 * ("/ListBucketResult/Contents/Key") and text; each `leaf` below handles the paths of one kind of document. */
#include "store/s3/protocol/reply.h"

#include "base/cleanup.h"
#include "base/memory.h"

#include <expat.h>
#include <string.h>
#include <time.h>

#define UNKNOWN UINT64_MAX /* a size or a time that is missing */

enum {
    BODY_MAX = 32 << 20,  /* 1,000 keys of 1,024 bytes, each written as %XX, are 3 MB */
    TEXT_MAX = 16 << 10,  /* the largest text of one element */
    PATH_BYTES = 256,     /* S3's deepest path has 60 bytes */
    ELEMENTS_MAX = 10000, /* maximum of objects or uploads on a page; S3 sends 1,000 */
};

typedef struct Walk {
    XML_Parser parser;
    char path[PATH_BYTES];
    char text[TEXT_MAX];
    size_t n_text;
    int (*leaf)(void *out, const char *path, const char *text, const char **ret_why);
    void *out;
    int r;
    const char *why;
} Walk;

static void stop(Walk *w, int r, const char *why)
{
    w->r = r;
    w->why = why;
    (void)XML_StopParser(w->parser, XML_FALSE); /* the result is in w->r */
}

static void XMLCALL on_begin(void *context, const char *name, const char **attributes)
{
    (void)attributes;
    Walk *w = context;
    size_t n = strlen(w->path), n_name = strlen(name);
    if (w->r < 0) /* expat may make one more call after it was stopped */
        return;
    if (n + 1 + n_name >= sizeof(w->path)) {
        stop(w, -EBADMSG, "elements too deep, or names too long");
        return;
    }
    w->path[n] = '/';
    memcpy(w->path + n + 1, name, n_name + 1);
    w->n_text = 0;
}

static void XMLCALL on_reply_text(void *context, const char *text, int n)
{
    Walk *w = context;
    if (w->r < 0)
        return;
    if (w->n_text + (size_t)n >= sizeof(w->text)) {
        stop(w, -EBADMSG, "a text too long");
        return;
    }
    memcpy(w->text + w->n_text, text, (size_t)n);
    w->n_text += (size_t)n;
}

static void XMLCALL on_reply_end(void *context, const char *name)
{
    (void)name;
    Walk *w = context;
    if (w->r < 0)
        return;
    w->text[w->n_text] = '\0';
    const char *why = "what it should not hold";
    int r = w->leaf(w->out, w->path, w->text, &why);
    if (r < 0) {
        stop(w, r, why);
        return;
    }
    *strrchr(w->path, '/') = '\0';
    w->n_text = 0; /* text between elements does not belong to their parent */
}

static void XMLCALL on_reply_doctype(void *context, const char *name, const char *system,
                                     const char *public, int has_internal)
{
    (void)name, (void)system, (void)public, (void)has_internal;
    stop(context, -EBADMSG, "a document type");
}

/* The server may send white space first, to keep the connection open while it works (CompleteMultipartUpload). */
static void skip_blanks(const char **body, size_t *n_bytes)
{
    while (*n_bytes > 0 && strchr(" \t\r\n", **body) && **body) {
        ++*body;
        --*n_bytes;
    }
}

static int walk(const char *what, const char *body, size_t n_bytes,
                int (*leaf)(void *out, const char *path, const char *text, const char **ret_why),
                void *out, Error *err)
{
    skip_blanks(&body, &n_bytes);
    if (n_bytes == 0 || n_bytes > BODY_MAX)
        return error_set(err, -EBADMSG, "%s: a body of %zu bytes", what, n_bytes);
    _cleanup_free_ Walk *w = memory_new(Walk);
    XML_Parser parser = w->parser = memory_given(XML_ParserCreate("UTF-8"));
    w->leaf = leaf;
    w->out = out;
    XML_SetUserData(parser, w);
    XML_SetElementHandler(parser, on_begin, on_reply_end);
    XML_SetCharacterDataHandler(parser, on_reply_text);
    XML_SetStartDoctypeDeclHandler(parser, on_reply_doctype);

    int r = 0;
    if (XML_Parse(parser, body, (int)n_bytes, 1) != XML_STATUS_OK) {
        enum XML_Error code = XML_GetErrorCode(parser);
        r = w->r < 0 ? w->r : code == XML_ERROR_NO_MEMORY ? -ENOMEM : -EBADMSG;
        (void)error_set(err, r, "%s: line %llu: %s", what,
                        (unsigned long long)XML_GetCurrentLineNumber(parser),
                        w->r < 0 ? w->why : XML_ErrorString(code));
    }
    XML_ParserFree(parser);
    return r;
}

/* ---- texts ---- */

/* Copies whole UTF-8 characters as far as they fit, without control characters: the text is logged, and a region is
 * sent in headers. */
static void copy_text(char *ret, size_t size, const char *text)
{
    size_t n = strnlen(text, size);
    if (n == size)
        do
            n--;
        while (n > 0 && ((uint8_t)text[n] & 0xc0) == 0x80);
    for (size_t i = 0; i < n; i++)
        ret[i] = (uint8_t)text[i] < 0x20 || text[i] == 0x7f ? ' ' : text[i];
    ret[n] = '\0';
}

/* Copies an ETag without its quotes, as for the header. -EBADMSG: it is too long. */
static int take_etag(const char *text, char ret[STORE_VERSION_MAX])
{
    const char *first = strncmp(text, "W/", 2) == 0 ? text + 2 : text;
    size_t n = strlen(first);
    const bool quoted = n >= 2 && first[0] == '"' && first[n - 1] == '"';
    first += quoted;
    n -= quoted ? 2 : 0;
    if (n >= STORE_VERSION_MAX)
        return -EBADMSG;
    (void)snprintf(ret, STORE_VERSION_MAX, "%.*s", (int)n, first);
    return 0;
}

static int parse_size(const char *text, uint64_t *ret, const char **ret_why)
{
    size_t n = strspn(text, "0123456789");
    *ret_why = "a size that is none";
    if (n == 0 || n > 18 || text[n])
        return -EBADMSG;
    *ret = strtoull(text, NULL, 10);
    return 0;
}

/* Parses a time like 2009-10-12T17:50:30.000Z. */
static int parse_time(const char *text, uint64_t *ret_usec, const char **ret_why)
{
    struct tm tm = {0};
    int n = 0;
    *ret_why = "a time that is none";
    if (strspn(text, "0123456789") != 4 ||
        sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, &n) != 6)
        return -EBADMSG;
    uint64_t usec = 0, unit = USEC_PER_SEC / 10;
    if (text[n] == '.')
        for (n++; text[n] >= '0' && text[n] <= '9'; n++, unit /= 10)
            usec += (uint64_t)(text[n] - '0') * unit;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    time_t seconds = timegm(&tm);
    if (strcmp(text + n, "Z") != 0 || seconds < 0)
        return -EBADMSG;
    *ret_usec = (uint64_t)seconds * USEC_PER_SEC + usec;
    return 0;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* Decodes a text of encoding-type=url in place: %XX, and '+' for a blank. */
static int decode_url(char *text)
{
    char *to = text;
    for (const char *p = text; *p; p++) {
        if (*p != '%') {
            *to++ = *p == '+' ? ' ' : *p;
            continue;
        }
        int high = digit_of(p[1]), low = high < 0 ? -1 : digit_of(p[2]);
        if (low < 0 || high * 16 + low == 0)
            return -EBADMSG;
        *to++ = (char)(high * 16 + low);
        p += 2;
    }
    *to = '\0';
    return 0;
}

static void set_text(char **ret, const char *text)
{
    free(*ret);
    *ret = memory_text(text);
}

/* Returns the part of the path after the prefix; NULL: the path has another prefix. */
static const char *below(const char *path, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(path, prefix, n) == 0 ? path + n : NULL;
}

/* ---- <Error> ---- */

static void set_error(S3Error *e, const char *name, const char *text)
{
    uint64_t usec;
    const char *why;
    if (strcmp(name, "Code") == 0)
        copy_text(e->code, sizeof(e->code), text);
    else if (strcmp(name, "Message") == 0)
        copy_text(e->message, sizeof(e->message), text);
    else if (strcmp(name, "RequestId") == 0)
        copy_text(e->request_id, sizeof(e->request_id), text);
    else if (strcmp(name, "Region") == 0)
        copy_text(e->region, sizeof(e->region), text);
    else if (strcmp(name, "Endpoint") == 0)
        copy_text(e->endpoint, sizeof(e->endpoint), text);
    else if (strcmp(name, "Bucket") == 0 || strcmp(name, "BucketName") == 0)
        copy_text(e->bucket, sizeof(e->bucket), text);
    else if (strcmp(name, "ServerTime") == 0 && parse_time(text, &usec, &why) == 0)
        e->server_time = (int64_t)(usec / USEC_PER_SEC);
}

typedef struct ErrorWalk {
    S3Error error;
    bool is_error;
} ErrorWalk;

static int error_leaf(void *out, const char *path, const char *text, const char **ret_why)
{
    (void)ret_why;
    ErrorWalk *w = out;
    const char *name = below(path, "/Error");
    if (name && !*name)
        w->is_error = true;
    else if (name && *name == '/')
        set_error(&w->error, name + 1, text);
    return 0;
}

int reply_error(const char *body, size_t n_bytes, S3Error *ret)
{
    ErrorWalk w = {.is_error = false};
    if (walk("an error", body, n_bytes, error_leaf, &w, NULL) < 0 || !w.is_error)
        return -ENOENT;
    *ret = w.error;
    return 0;
}

/* ---- ListObjectsV2, ListMultipartUploads ---- */

/* The names of a listing's elements. Paths are relative to the document's path; "": the listing has no such element. */
typedef struct Listing {
    const char *what, *document, *entry, *key, *id, *size, *time, *etag, *next, *next_id;
    const char *lacks, *too_many;
} Listing;

static const Listing objects = {
    .what = "a list",
    .document = "/ListBucketResult",
    .entry = "/Contents",
    .key = "/Contents/Key",
    .id = "",
    .size = "/Contents/Size",
    .time = "/Contents/LastModified",
    .etag = "/Contents/ETag",
    .next = "/NextContinuationToken",
    .next_id = "",
    .lacks = "an object without its key, size or time",
    .too_many = "too many objects",
};

static const Listing uploads = {
    .what = "a list of uploads",
    .document = "/ListMultipartUploadsResult",
    .entry = "/Upload",
    .key = "/Upload/Key",
    .id = "/Upload/UploadId",
    .size = "",
    .time = "/Upload/Initiated",
    .etag = "",
    .next = "/NextKeyMarker",
    .next_id = "/NextUploadIdMarker",
    .lacks = "an upload without its key, id or time",
    .too_many = "too many uploads",
};

typedef struct PageWalk {
    const Listing *listing;
    ReplyPage page;
    size_t room;
    bool encoded, truncated, is_page;
    ReplyEntry entry; /* the entry being parsed */
} PageWalk;

static const ReplyEntry no_entry = {.n_bytes = UNKNOWN, .usec = UNKNOWN};

static void free_entry(ReplyEntry *entry)
{
    free(entry->key);
    free(entry->id);
}

static int end_entry(PageWalk *w, const char **ret_why)
{
    const ReplyEntry *e = &w->entry;
    ReplyPage *page = &w->page;
    if (!e->key || !*e->key || (*w->listing->id && (!e->id || !*e->id)) ||
        (*w->listing->size && e->n_bytes == UNKNOWN) || e->usec == UNKNOWN) {
        *ret_why = w->listing->lacks;
        return -EBADMSG;
    }
    if (page->n_entries >= ELEMENTS_MAX) {
        *ret_why = w->listing->too_many;
        return -EBADMSG;
    }
    page->entries = memory_grow(page->entries, page->n_entries, &w->room, sizeof(ReplyEntry));
    page->entries[page->n_entries++] = *e;
    w->entry = no_entry;
    return 0;
}

static int page_leaf(void *out, const char *path, const char *text, const char **ret_why)
{
    PageWalk *w = out;
    const Listing *listing = w->listing;
    const char *name = below(path, listing->document);
    if (!name)
        return 0;
    if (!*name)
        w->is_page = true;
    else if (strcmp(name, listing->key) == 0)
        set_text(&w->entry.key, text);
    else if (strcmp(name, listing->id) == 0)
        set_text(&w->entry.id, text);
    else if (strcmp(name, listing->size) == 0)
        return parse_size(text, &w->entry.n_bytes, ret_why);
    else if (strcmp(name, listing->time) == 0)
        return parse_time(text, &w->entry.usec, ret_why);
    else if (strcmp(name, listing->etag) == 0)
        (void)take_etag(text, w->entry.etag); /* an ETag that is too long is left out */
    else if (strcmp(name, listing->entry) == 0)
        return end_entry(w, ret_why);
    else if (strcmp(name, listing->next) == 0)
        set_text(&w->page.next, text);
    else if (strcmp(name, listing->next_id) == 0)
        set_text(&w->page.next_id, text);
    else if (strcmp(name, "/IsTruncated") == 0)
        w->truncated = strcmp(text, "true") == 0;
    else if (strcmp(name, "/EncodingType") == 0)
        w->encoded = strcmp(text, "url") == 0;
    return 0;
}

static int finish_page(PageWalk *w, Error *err)
{
    const char *what = w->listing->what;
    ReplyPage *page = &w->page;
    if (!w->is_page)
        return error_set(err, -EBADMSG, "%s: another document", what);
    for (size_t i = 0; i < page->n_entries && w->encoded; i++)
        if (decode_url(page->entries[i].key) < 0)
            return error_set(err, -EBADMSG, "%s: the key %.64s is not encoded as it should be",
                             what, page->entries[i].key);
    const bool key_is_next = *w->listing->next_id;
    if (w->encoded && key_is_next && page->next && decode_url(page->next) < 0)
        return error_set(err, -EBADMSG, "%s: the marker %.64s is not encoded as it should be", what,
                         page->next);
    if (w->truncated && (!page->next || !*page->next))
        return error_set(err, -EBADMSG, "%s: there is more, and no %s to ask for it", what,
                         key_is_next ? "marker" : "token");
    if (!w->truncated) {
        free(page->next);
        free(page->next_id);
        page->next = page->next_id = NULL;
    }
    return 0;
}

static int read_page(const Listing *listing, const char *body, size_t n_bytes, ReplyPage *ret,
                     Error *err)
{
    PageWalk w = {.listing = listing, .entry = no_entry};
    int r = walk(listing->what, body, n_bytes, page_leaf, &w, err);
    if (r == 0)
        r = finish_page(&w, err);
    free_entry(&w.entry);
    if (r < 0) {
        reply_page_clear(&w.page);
        return r;
    }
    *ret = w.page;
    return 0;
}

int reply_list(const char *body, size_t n_bytes, ReplyPage *ret, Error *err)
{
    return read_page(&objects, body, n_bytes, ret, err);
}

int reply_uploads(const char *body, size_t n_bytes, ReplyPage *ret, Error *err)
{
    return read_page(&uploads, body, n_bytes, ret, err);
}

void reply_page_clear(ReplyPage *page)
{
    for (size_t i = 0; i < page->n_entries; i++)
        free_entry(&page->entries[i]);
    free(page->entries);
    free(page->next);
    free(page->next_id);
    *page = (ReplyPage){.entries = NULL};
}

/* ---- one text, or an error ---- */

typedef struct TextWalk {
    const char *path;
    char *text;
    ErrorWalk error;
} TextWalk;

static int text_leaf(void *out, const char *path, const char *text, const char **ret_why)
{
    TextWalk *w = out;
    if (strcmp(path, w->path) != 0)
        return error_leaf(&w->error, path, text, ret_why);
    set_text(&w->text, text);
    return 0;
}

static int find_text(const char *what, const char *body, size_t n_bytes, const char *path,
                     char **ret, Error *err)
{
    TextWalk w = {.path = path};
    int r = walk(what, body, n_bytes, text_leaf, &w, err);
    if (r == 0 && w.error.is_error)
        r = error_set(err, -EIO, "%s: %s: %s", what, w.error.error.code, w.error.error.message);
    else if (r == 0 && (!w.text || !*w.text))
        r = error_set(err, -EBADMSG, "%s: no %s", what, path);
    if (r < 0) {
        free(w.text);
        return r;
    }
    *ret = w.text;
    return 0;
}

int reply_upload_id(const char *body, size_t n_bytes, char **ret, Error *err)
{
    return find_text("a multipart upload's begin", body, n_bytes,
                     "/InitiateMultipartUploadResult/UploadId", ret, err);
}

int reply_complete(const char *body, size_t n_bytes, char ret_etag[STORE_VERSION_MAX], Error *err)
{
    _cleanup_free_ char *text = NULL;
    int r = find_text("a multipart upload's end", body, n_bytes,
                      "/CompleteMultipartUploadResult/ETag", &text, err);
    if (r < 0)
        return r;
    r = take_etag(text, ret_etag);
    return r < 0 ? error_set(err, r, "a multipart upload's end: an ETag of %zu bytes", strlen(text))
                 : 0;
}

/* ---- DeleteObjects ---- */

typedef struct DeleteWalk {
    bool is_result, failed;
    S3Error error, first;
    char *key, *first_key;
    ErrorWalk whole; /* used if the document is an <Error> */
} DeleteWalk;

static int delete_leaf(void *out, const char *path, const char *text, const char **ret_why)
{
    DeleteWalk *w = out;
    const char *name = below(path, "/DeleteResult");
    if (!name)
        return error_leaf(&w->whole, path, text, ret_why);
    if (!*name)
        w->is_result = true;
    else if (strcmp(name, "/Error/Key") == 0)
        set_text(&w->key, text);
    else if (strcmp(name, "/Error") == 0) {
        if (!w->failed && strcmp(w->error.code, "NoSuchKey") != 0) {
            w->failed = true;
            w->first = w->error;
            w->first_key = TAKE_PTR(w->key);
        }
        w->error = (S3Error){.server_time = 0};
    } else if ((name = below(name, "/Error/")))
        set_error(&w->error, name, text);
    return 0;
}

int reply_delete(const char *body, size_t n_bytes, S3Error *ret_first, char **ret_key, Error *err)
{
    DeleteWalk w = {.failed = false};
    int r = walk("a deletion", body, n_bytes, delete_leaf, &w, err);
    if (r == 0 && w.whole.is_error) {
        w.failed = true;
        w.first = w.whole.error;
    } else if (r == 0 && !w.is_result)
        r = error_set(err, -EBADMSG, "a deletion: another document");
    free(w.key);
    if (r == 0 && w.failed) {
        *ret_first = w.first;
        *ret_key = w.first_key ?: memory_text("");
        return error_set(err, -EIO, "cannot delete %.128s: %s: %s", *ret_key, w.first.code,
                         w.first.message);
    }
    free(w.first_key);
    return r;
}
