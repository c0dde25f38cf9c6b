/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-s3-reply.c - any bytes as each of S3's XML bodies are either refused with an error, or parsed completely. */
#include "base/cleanup.h"
#include "store/s3/protocol/reply.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void assert_printable(const char *text, size_t size)
{
    assert(strnlen(text, size) < size);
    for (; *text; text++)
        assert((uint8_t)*text >= 0x20 && *text != 0x7f);
}

static void check_error(const S3Error *e)
{
    assert_printable(e->code, sizeof(e->code));
    assert_printable(e->message, sizeof(e->message));
    assert_printable(e->request_id, sizeof(e->request_id));
    assert_printable(e->region, sizeof(e->region));
    assert_printable(e->endpoint, sizeof(e->endpoint));
    assert_printable(e->bucket, sizeof(e->bucket));
    assert(e->server_time >= 0);
}

static void try_lists(const char *body, size_t n)
{
    Error err = ERROR_INIT;
    ReplyPage list;
    int r = reply_list(body, n, &list, &err);
    if (r == 0) {
        for (size_t i = 0; i < list.n_entries; i++)
            assert(*list.entries[i].key);
        assert(!list.next || *list.next);
        reply_page_clear(&list);
    } else
        assert(r == -EBADMSG && err.text[0]);

    ReplyPage uploads;
    r = reply_uploads(body, n, &uploads, &err);
    if (r == 0) {
        for (size_t i = 0; i < uploads.n_entries; i++)
            assert(*uploads.entries[i].key && *uploads.entries[i].id);
        assert(!uploads.next || *uploads.next);
        reply_page_clear(&uploads);
    } else
        assert(r == -EBADMSG && err.text[0]);
}

static void try_others(const char *body, size_t n)
{
    Error err = ERROR_INIT;
    S3Error error;
    if (reply_error(body, n, &error) == 0)
        check_error(&error);

    char etag[STORE_VERSION_MAX], *text = NULL;
    int r = reply_complete(body, n, etag, &err);
    assert(r == 0 || ((r == -EBADMSG || r == -EIO) && err.text[0]));
    assert(r < 0 || strnlen(etag, sizeof(etag)) < sizeof(etag));

    r = reply_upload_id(body, n, &text, &err);
    assert(r < 0 ? !text : *text);
    free(TAKE_PTR(text));

    r = reply_delete(body, n, &error, &text, &err);
    assert((r == -EIO) == (text != NULL));
    if (text)
        check_error(&error);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_lists((const char *)data, size);
    try_others((const char *)data, size);
    return 0;
}
