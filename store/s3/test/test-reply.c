/* SPDX-License-Identifier: Apache-2.0 */
/* test-reply.c - replies of AWS, Ceph, Swift, and of servers that are not S3 servers. */
#include "base/test/testing.h"
#include "store/s3/protocol/reply.h"

#include <string.h>

#define XMLNS " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""
#define XML "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"

static void assert_text(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("%s: expected %s", text, words);
}

/* ---- errors ---- */

static void test_errors(void **state)
{
    (void)state;
    S3Error e;
    static const char skewed[] = XML
        "\n<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request "
        "time and the current time is too large.</Message><RequestTime>20260101T000000Z"
        "</RequestTime><ServerTime>2026-01-31T12:00:00Z</ServerTime><MaxAllowedSkewMilliseconds>"
        "900000</MaxAllowedSkewMilliseconds><RequestId>0A49CE4060975EAC</RequestId></Error>";
    assert_int_equal(reply_error(skewed, strlen(skewed), &e), 0);
    assert_string_equal(e.code, "RequestTimeTooSkewed");
    assert_text(e.message, "The difference between");
    assert_string_equal(e.request_id, "0A49CE4060975EAC");
    assert_int_equal(e.server_time, 1769860800);
    assert_string_equal(e.region, "");

    static const char redirect[] =
        "\r\n  " XML "<Error><Code>PermanentRedirect</Code><Endpoint>b.s3-eu-west-1.amazonaws.com"
        "</Endpoint><Bucket>b</Bucket><Region>eu-west-1\n</Region></Error>";
    assert_int_equal(reply_error(redirect, strlen(redirect), &e), 0);
    assert_string_equal(e.endpoint, "b.s3-eu-west-1.amazonaws.com");
    assert_string_equal(e.bucket, "b");
    assert_string_equal(e.region, "eu-west-1 ");

    static const char ceph[] = XML
        "<Error><Code>NoSuchKey</Code><Message></Message><BucketName>lab</BucketName><RequestId>"
        "tx00000c71-6b3a-4188-default</RequestId><HostId>4188-default-default</HostId></Error>";
    assert_int_equal(reply_error(ceph, strlen(ceph), &e), 0);
    assert_string_equal(e.code, "NoSuchKey");
    assert_string_equal(e.bucket, "lab");

    static const char swift[] = "<?xml version='1.0' encoding='UTF-8'?>\n<Error><Code>AccessDenied"
                                "</Code><Message>Access &amp;#39;Denied&#39;</Message></Error>";
    assert_int_equal(reply_error(swift, strlen(swift), &e), 0);
    assert_string_equal(e.message, "Access &#39;Denied'");

    static const char *const none[] = {
        "",
        " \n",
        "{\"Error\": 1}",
        "<html><body><Error><Code>X</Code></Error></body></html>",
        "<Error><Code>SlowDown</Code>",
        "<Errors><Code>X</Code></Errors>",
        XML "<ListBucketResult" XMLNS "></ListBucketResult>",
        "<!DOCTYPE a [<!ENTITY x \"y\">]><Error><Code>&x;</Code></Error>",
        "<Error><Code>&x;</Code></Error>",
    };
    for (size_t i = 0; i < ELEMENTSOF(none); i++)
        assert_int_equal(reply_error(none[i], strlen(none[i]), &e), -ENOENT);
}

/* A long message is cut between characters, and has no character that would break a line. */
static void test_long_error(void **state)
{
    (void)state;
    char body[2048] = "<Error><Message>a&#10;", *end = body + strlen(body);
    for (int i = 0; i < 300; i++)
        end += snprintf(end, 4, "\xc3\xbc");
    snprintf(end, 32, "</Message></Error>");
    S3Error e;
    assert_int_equal(reply_error(body, strlen(body), &e), 0);
    assert_int_equal(strlen(e.message), 254);
    assert_memory_equal(e.message, "a \xc3\xbc", 4);
    assert_memory_equal(e.message + 252, "\xc3\xbc", 3);
    assert_string_equal(e.code, "");
}

/* ---- lists ---- */

static ReplyPage list_of(const char *body)
{
    Error err = ERROR_INIT;
    ReplyPage list;
    if (reply_list(body, strlen(body), &list, &err) < 0)
        fail_msg("%s", err.text);
    return list;
}

static void test_list(void **state)
{
    (void)state;
    static const char aws[] = XML
        "\n<ListBucketResult" XMLNS
        "><Name>b</Name><Prefix>a/</Prefix><NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/"
        "wm36Hy4vbOwM=</NextContinuationToken><KeyCount>2</KeyCount><MaxKeys>2</MaxKeys>"
        "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
        "<Contents><Key>a/my+own%2Bkey%25.txt</Key><LastModified>2009-10-12T17:50:30.123Z"
        "</LastModified><ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag><Size>434234</"
        "Size>"
        "<StorageClass>STANDARD</StorageClass><Owner><ID>x</ID></Owner></Contents>"
        "<Contents><Key>a/%E6%97%A5//%2e</Key><LastModified>2038-01-19T03:14:08Z</LastModified>"
        "<Size>0</Size><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm></Contents>"
        "<CommonPrefixes><Prefix>a/b/</Prefix></CommonPrefixes></ListBucketResult>";
    ReplyPage list = list_of(aws);
    assert_int_equal(list.n_entries, 2);
    assert_string_equal(list.entries[0].key, "a/my own+key%.txt");
    assert_int_equal(list.entries[0].n_bytes, 434234);
    assert_int_equal(list.entries[0].usec, UINT64_C(1255369830123000));
    assert_string_equal(list.entries[0].etag, "fba9dede5f27731c9771645a39863328");
    assert_string_equal(list.entries[1].etag, "");
    assert_string_equal(list.entries[1].key, "a/\xe6\x97\xa5//.");
    assert_int_equal(list.entries[1].n_bytes, 0);
    assert_int_equal(list.entries[1].usec, UINT64_C(2147483648000000));
    assert_string_equal(list.next, "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=");
    reply_page_clear(&list);

    /* Ceph sends the encoding last. */
    static const char ceph[] = XML
        "<ListBucketResult" XMLNS
        "><Name>lab</Name><Prefix></Prefix><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"
        "<Contents><Key>sp%20a%2Bb</Key><LastModified>2026-01-31T12:00:00.000Z</LastModified>"
        "<ETag>&quot;x&quot;</ETag><Size>5368709121</Size><StorageClass>STANDARD</StorageClass>"
        "<Type>Normal</Type></Contents><Marker></Marker><EncodingType>url</EncodingType>"
        "</ListBucketResult>";
    list = list_of(ceph);
    assert_int_equal(list.n_entries, 1);
    assert_string_equal(list.entries[0].key, "sp a+b");
    assert_int_equal(list.entries[0].n_bytes, UINT64_C(5368709121));
    assert_null(list.next);
    reply_page_clear(&list);

    /* A list that is not encoded; the last page repeats its token. */
    static const char plain[] =
        "<?xml version='1.0' encoding='UTF-8'?>\n<ListBucketResult" XMLNS
        "><IsTruncated>false</IsTruncated><NextContinuationToken>x</NextContinuationToken>\n"
        "<Contents>\n<Key>a+%41&lt;</Key>\n<Size>1</Size><LastModified>1970-01-01T00:00:00.000Z"
        "</LastModified></Contents></ListBucketResult>\n";
    list = list_of(plain);
    assert_string_equal(list.entries[0].key, "a+%41<");
    assert_int_equal(list.entries[0].usec, 0);
    assert_null(list.next);
    reply_page_clear(&list);

    /* A token is not a key: encoding-type does not apply to it. */
    list = list_of("<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true"
                   "</IsTruncated><NextContinuationToken>a+b%2Fc</NextContinuationToken>"
                   "</ListBucketResult>");
    assert_string_equal(list.next, "a+b%2Fc");
    reply_page_clear(&list);

    list = list_of("<ListBucketResult/>");
    assert_int_equal(list.n_entries, 0);
    reply_page_clear(&list);
}

#define TIME "<LastModified>2026-01-31T12:00:00.000Z</LastModified>"
#define LIST(x) "<ListBucketResult>" x "</ListBucketResult>"
#define OBJECT(x) LIST("\n<Contents>" x "</Contents>")

static void test_bad_lists(void **state)
{
    (void)state;
    static const struct {
        const char *body, *words;
    } cases[] = {
        {"", "a list: a body of 0 bytes"},
        {"x", "a list: line 1: "},
        {"<a></b>", "line 1: mismatched tag"},
        {"<Error><Code>X</Code></Error>", "another document"},
        {"<ListBucketResult><Contents>", "line 1: no element found"},
        {OBJECT("<Size>1</Size>" TIME), "line 2: an object without its key, size or time"},
        {OBJECT("<Key/><Size>1</Size>" TIME), "without its key"},
        {OBJECT("<Key>a</Key>" TIME), "without its key, size"},
        {OBJECT("<Key>a</Key><Size>1</Size>"), "without its key, size or time"},
        {OBJECT("<Key>a</Key><Size>-1</Size>" TIME), "line 2: a size that is none"},
        {OBJECT("<Key>a</Key><Size>1 </Size>" TIME), "a size that is none"},
        {OBJECT("<Key>a</Key><Size></Size>" TIME), "a size that is none"},
        {OBJECT("<Key>a</Key><Size>9999999999999999999</Size>" TIME), "a size that is none"},
        {OBJECT("<LastModified>yesterday</LastModified>"), "a time that is none"},
        {OBJECT("<LastModified>2026-01-31T12:00:00+01:00</LastModified>"), "a time that is none"},
        {OBJECT("<LastModified>1926-01-31T12:00:00Z</LastModified>"), "a time that is none"},
        {LIST("<IsTruncated>true</IsTruncated>"), "there is more, and no token"},
        {LIST("<IsTruncated>true</IsTruncated><NextContinuationToken/>"), "and no token"},
        {LIST("<EncodingType>url</EncodingType><Contents><Key>a%4</Key><Size>1</Size>" TIME
              "</Contents>"),
         "the key a%4 is not encoded"},
        {LIST("<EncodingType>url</EncodingType><Contents><Key>a%00b</Key><Size>1</Size>" TIME
              "</Contents>"),
         "the key a%00b is not encoded"},
        {"<!DOCTYPE ListBucketResult><ListBucketResult/>", "a document type"},
        {"<!DOCTYPE a [<!ENTITY a \"aa\"><!ENTITY b \"&a;&a;\">]><a>&b;</a>", "a document type"},
        {"<ListBucketResult>&evil;</ListBucketResult>", "undefined entity"},
        {"<ListBucketResult>\xff</ListBucketResult>", "not well-formed"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        ReplyPage list = {.n_entries = 7};
        assert_int_equal(reply_list(cases[i].body, strlen(cases[i].body), &list, &err), -EBADMSG);
        assert_text(err.text, cases[i].words);
        assert_int_equal(list.n_entries, 7);
    }
}

typedef struct Body {
    char *text;
    size_t n;
    FILE *stream;
} Body;

static FILE *body_begin(Body *body)
{
    body->stream = open_memstream(&body->text, &body->n);
    assert_non_null(body->stream);
    return body->stream;
}

static void assert_bad_list(Body *body, const char *words)
{
    Error err = ERROR_INIT;
    ReplyPage list;
    assert_int_equal(fclose(body->stream), 0);
    assert_int_equal(reply_list(body->text, body->n, &list, &err), -EBADMSG);
    assert_text(err.text, words);
    free(body->text);
}

/* Replies that are larger than any server's are refused. */
static void test_bounds(void **state)
{
    (void)state;
    Body body;
    FILE *f = body_begin(&body);
    fprintf(f, "<ListBucketResult>");
    for (int i = 0; i < 10001; i++)
        fprintf(f, "<Contents><Key>%d</Key><Size>1</Size>" TIME "</Contents>", i);
    fprintf(f, "</ListBucketResult>");
    assert_bad_list(&body, "too many objects");

    f = body_begin(&body);
    for (int i = 0; i < 300; i++)
        fprintf(f, "<a>");
    assert_bad_list(&body, "too deep");

    f = body_begin(&body);
    fprintf(f, "<%0300d/>", 0);
    assert_bad_list(&body, "not well-formed"); /* a name does not begin with a digit */
    f = body_begin(&body);
    fprintf(f, "<a%0300d/>", 0);
    assert_bad_list(&body, "too deep, or names too long");

    f = body_begin(&body);
    fprintf(f, "<ListBucketResult><Contents><Key>%020000d</Key>", 0);
    assert_bad_list(&body, "a text too long");

    f = body_begin(&body);
    fprintf(f, "<a>%0*d</a>", 33 << 20, 0);
    assert_bad_list(&body, "a body of 3");
}

static void test_uploads(void **state)
{
    (void)state;
    static const char body[] =
        XML "<ListMultipartUploadsResult" XMLNS
            "><Bucket>b</Bucket><KeyMarker></KeyMarker><NextKeyMarker>my+movie</NextKeyMarker>"
            "<NextUploadIdMarker>YW55+Ig==</NextUploadIdMarker><EncodingType>url</EncodingType>"
            "<MaxUploads>2</MaxUploads><IsTruncated>true</IsTruncated><Upload><Key>a+b%2F</"
            "Key><UploadId>"
            "XMgbGlrZSBlbHZpbmcncyBub3QgaGF2aW5nIG11Y2ggbHVjaw</UploadId><Initiator><ID>i</ID></"
            "Initiator>"
            "<Owner/><StorageClass>STANDARD</StorageClass><Initiated>2010-11-10T20:48:33.000Z</"
            "Initiated>"
            "</Upload></ListMultipartUploadsResult>";
    Error err = ERROR_INIT;
    ReplyPage u;
    assert_int_equal(reply_uploads(body, strlen(body), &u, &err), 0);
    assert_int_equal(u.n_entries, 1);
    assert_string_equal(u.entries[0].key, "a b/");
    assert_string_equal(u.entries[0].id, "XMgbGlrZSBlbHZpbmcncyBub3QgaGF2aW5nIG11Y2ggbHVjaw");
    assert_int_equal(u.entries[0].usec, UINT64_C(1289422113000000));
    assert_string_equal(u.next, "my movie");
    assert_string_equal(u.next_id, "YW55+Ig==");
    reply_page_clear(&u);

    static const char last[] = "<ListMultipartUploadsResult><NextKeyMarker>x</NextKeyMarker>"
                               "<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>";
    assert_int_equal(reply_uploads(last, strlen(last), &u, &err), 0);
    assert_int_equal(u.n_entries, 0);
    assert_null(u.next);
    assert_null(u.next_id);
    reply_page_clear(&u);

    static const struct {
        const char *body, *words;
    } bad[] = {
        {"<a/>", "another document"},
        {"<ListMultipartUploadsResult><Upload><Key>a</Key><UploadId>b</UploadId></Upload>",
         "an upload without its key, id or time"},
        {"<ListMultipartUploadsResult><Upload><Key>a</Key>"
         "<Initiated>2010-11-10T20:48:33.000Z</Initiated></Upload>",
         "an upload without its key, id or time"},
        {"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>",
         "no marker"},
        {"<ListMultipartUploadsResult><EncodingType>url</EncodingType><NextKeyMarker>%</"
         "NextKeyMarker>"
         "</ListMultipartUploadsResult>",
         "not encoded"},
    };
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        assert_int_equal(reply_uploads(bad[i].body, strlen(bad[i].body), &u, &err), -EBADMSG);
        assert_text(err.text, bad[i].words);
    }
}

/* ---- multipart, deletions ---- */

static void test_multipart(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    _cleanup_free_ char *id = NULL;
    static const char begin[] = XML "<InitiateMultipartUploadResult" XMLNS
                                    "><Bucket>b</Bucket><Key>k</Key><UploadId>2~hNUX4xr</"
                                    "UploadId></InitiateMultipartUploadResult>";
    assert_int_equal(reply_upload_id(begin, strlen(begin), &id, &err), 0);
    assert_string_equal(id, "2~hNUX4xr");
    static const char empty[] =
        "<InitiateMultipartUploadResult><UploadId/></InitiateMultipartUploadResult>";
    char *other = NULL;
    assert_int_equal(reply_upload_id(empty, strlen(empty), &other, &err), -EBADMSG);
    assert_null(other);

    char etag[STORE_VERSION_MAX] = "";
    /* White space comes first: the server had to send something while it was still working. */
    static const char end[] =
        "   \n\n" XML "<CompleteMultipartUploadResult" XMLNS
        "><Location>http://b.s3.amazonaws.com/k</Location><Bucket>b</Bucket><Key>k</Key>"
        "<ETag>&quot;3858f62230ac3c915f300c664312c11f-9&quot;</ETag></"
        "CompleteMultipartUploadResult>";
    assert_int_equal(reply_complete(end, strlen(end), etag, &err), 0);
    assert_string_equal(etag, "3858f62230ac3c915f300c664312c11f-9");
    static const char bare[] = "<CompleteMultipartUploadResult><ETag>abc-1</ETag>"
                               "</CompleteMultipartUploadResult>";
    assert_int_equal(reply_complete(bare, strlen(bare), etag, &err), 0);
    assert_string_equal(etag, "abc-1");

    static const char error[] = "  " XML "<Error><Code>InternalError</Code><Message>We encountered "
                                "an internal error.</Message></Error>";
    assert_int_equal(reply_complete(error, strlen(error), etag, &err), -EIO);
    assert_text(err.text, "InternalError: We encountered");
    assert_int_equal(reply_complete("", 0, etag, &err), -EBADMSG);
    assert_int_equal(reply_complete("<a/>", 4, etag, &err), -EBADMSG);
    char longer[512];
    snprintf(longer, sizeof(longer),
             "<CompleteMultipartUploadResult><ETag>%0200d</ETag></CompleteMultipartUploadResult>",
             0);
    assert_int_equal(reply_complete(longer, strlen(longer), etag, &err), -EBADMSG);
    assert_text(err.text, "an ETag of 200 bytes");
    assert_string_equal(etag, "abc-1");
}

static void test_delete(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    S3Error first;
    char *key = NULL;
    static const char *const good[] = {
        XML "<DeleteResult" XMLNS "><Deleted><Key>a</Key></Deleted></DeleteResult>",
        "<DeleteResult/>",
        "<DeleteResult><Error><Key>a</Key><Code>NoSuchKey</Code></Error></DeleteResult>",
    };
    for (size_t i = 0; i < ELEMENTSOF(good); i++)
        assert_int_equal(reply_delete(good[i], strlen(good[i]), &first, &key, &err), 0);
    assert_null(key);

    static const char bad[] =
        "<DeleteResult><Deleted><Key>a</Key></Deleted>"
        "<Error><Key>n</Key><Code>NoSuchKey</Code></Error>"
        "<Error><Code>AccessDenied</Code><Message>no</Message><Key>b</Key></Error>"
        "<Error><Key>c</Key><Code>InternalError</Code></Error></DeleteResult>";
    assert_int_equal(reply_delete(bad, strlen(bad), &first, &key, &err), -EIO);
    assert_string_equal(key, "b");
    assert_string_equal(first.code, "AccessDenied");
    assert_text(err.text, "cannot delete b: AccessDenied: no");
    free(TAKE_PTR(key));

    static const char whole[] = "<Error><Code>SlowDown</Code></Error>";
    assert_int_equal(reply_delete(whole, strlen(whole), &first, &key, &err), -EIO);
    assert_string_equal(first.code, "SlowDown");
    assert_string_equal(key, "");
    free(TAKE_PTR(key));
    assert_int_equal(reply_delete("<a/>", 4, &first, &key, &err), -EBADMSG);
    assert_null(key);
}

/* ---- headers ---- */

static ReplyHeaders headers_of(const char *const lines[], size_t n)
{
    ReplyHeaders h;
    reply_headers_init(&h);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(reply_headers_add(&h, lines[i], strlen(lines[i])), 0);
    return h;
}

static void test_headers(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "HTTP/1.1 100 Continue\r\n",
        "Content-Length: 3\r\n",
        "\r\n",
        "HTTP/1.1 206 Partial Content\r\n",
        "x-amz-request-id: tx000-default\r\n",
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "LAST-MODIFIED:Thu, 29 Feb 2024 23:59:60 GMT  \r\n",
        "ETag: \"d41d8cd98f00b204e9800998ecf8427e\"\r\n",
        "Content-Range: bytes 10-19/443\r\n",
        "Content-Length: 10\r\n",
        "x-amz-checksum-crc32c: 4waSgw==\r\n",
        "x-amz-checksum-type: FULL_OBJECT\r\n",
        "x-amz-bucket-region: eu-west-1\r\n",
        "Location: http://b.s3.eu-west-1.amazonaws.com/k\r\n",
        "Retry-After: 3\r\n",
        "Server: AmazonS3",
        "\r\n",
    };
    ReplyHeaders h = headers_of(lines, ELEMENTSOF(lines));
    assert_string_equal(h.request_id, "tx000-default");
    assert_int_equal(h.date, 784111777);
    assert_int_equal(h.modified_usec, UINT64_C(1709251200000000));
    assert_string_equal(h.etag, "d41d8cd98f00b204e9800998ecf8427e");
    assert_true(h.has_range);
    assert_int_equal(h.range_first, 10);
    assert_int_equal(h.range_last, 19);
    assert_int_equal(h.size, 443);
    assert_true(h.has_length);
    assert_int_equal(h.length, 10);
    assert_true(h.has_crc32c);
    assert_int_equal(h.crc32c, 0xE3069283);
    assert_string_equal(h.region, "eu-west-1");
    assert_string_equal(h.location, "http://b.s3.eu-west-1.amazonaws.com/k");
    assert_int_equal(h.retry_after_sec, 3);

    static const char *const encrypted[] = {
        "x-amz-server-side-encryption: AES256",
        "x-amz-server-side-encryption: aws:kms",
        "x-amz-server-side-encryption: aws:kms:dsse",
        "x-amz-server-side-encryption-customer-algorithm: AES256",
    };
    assert_false(h.etag_opaque);
    for (size_t i = 0; i < ELEMENTSOF(encrypted); i++)
        assert_int_equal(headers_of(&encrypted[i], 1).etag_opaque, i > 0);

    static const char *const status[] = {"HTTP/1.1 200 OK"};
    reply_headers_add(&h, status[0], strlen(status[0]));
    assert_false(h.has_length || h.has_range || h.has_crc32c);
    assert_string_equal(h.etag, "");
    assert_int_equal(h.retry_after_sec, -1);
}

/* A checksum computed from the parts' checksums is not a checksum of the object. */
static void test_composite(void **state)
{
    (void)state;
    static const char *const first[] = {"x-amz-checksum-type: COMPOSITE",
                                        "x-amz-checksum-crc32c: 4waSgw=="};
    assert_false(headers_of(first, 2).has_crc32c);
    static const char *const last[] = {"x-amz-checksum-crc32c: 4waSgw==",
                                       "x-amz-checksum-type: composite"};
    assert_false(headers_of(last, 2).has_crc32c);
    static const char *const parts[] = {"x-amz-checksum-crc32c: 4waSgw==-3"};
    assert_false(headers_of(parts, 1).has_crc32c);
}

/* Invalid headers are ignored. */
static void test_odd_headers(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        ":",
        "no colon",
        "Date: yesterday",
        "Date: Sunday, 06-Nov-94 08:49:37 GMT",
        "Date: Sun, 06 Nob 1994 08:49:37 GMT",
        "Date: Sun, 06 anF 1994 08:49:37 GMT",
        "Date: Sun, 06 Nov 1994 08:49:37 CET",
        "Date: Sun, 06 Nov 1994 08:49:37 GMT, or so",
        "Last-Modified: Sun, 06 Nov 1894 08:49:37 GMT",
        "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT",
        "Retry-After: -1",
        "x-amz-bucket-region: us\x01x",
        "x-amz-bucket-region: 0123456789012345678901234567890123456789012345678901234567890123",
        "x-amz-checksum-crc32c: 4waSgw=",
        "x-amz-checksum-crc32c: 4waSg!==",
        "x-amz-checksum-crc32c: 4waSgx==",
        "Content-MD5: 1",
    };
    ReplyHeaders h = headers_of(lines, ELEMENTSOF(lines)), none;
    reply_headers_init(&none);
    assert_memory_equal(&h, &none, sizeof(h));

    static const char *const some[] = {"ETag: W/\"a\"", "Retry-After: 999999999",
                                       "Content-Range: bytes */443"};
    h = headers_of(some, ELEMENTSOF(some));
    assert_string_equal(h.etag, "a");
    assert_int_equal(h.retry_after_sec, 86400);
    assert_false(h.has_range);
    assert_int_equal(h.size, 443);
    static const char *const open[] = {"Content-Range: bytes 0-9/*", "ETag: bare"};
    h = headers_of(open, ELEMENTSOF(open));
    assert_true(h.has_range);
    assert_int_equal(h.size, 0);
    assert_string_equal(h.etag, "bare");
}

/* A header with a number of bytes must be valid. */
static void test_bad_headers(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "Content-Length:",
        "Content-Length: -1",
        "Content-Length: 10x",
        "Content-Length: 0x10",
        "Content-Length: 1\x01",
        "Content-Length: 99999999999999999999",
        "Content-Range: 0-9/10",
        "Content-Range: bytes 0-9",
        "Content-Range: bytes 9-0/10",
        "Content-Range: bytes 0-10/10",
        "Content-Range: bytes -9/10",
        "Content-Range: bytes 0-9/10, 11-12/20",
        "Content-Range: bytes 0-9/",
        "Content-Range: bytes *",
    };
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        ReplyHeaders h, none;
        reply_headers_init(&h);
        reply_headers_init(&none);
        assert_int_equal(reply_headers_add(&h, bad[i], strlen(bad[i])), -EBADMSG);
        assert_memory_equal(&h, &none, sizeof(h));
    }
    static const char *const two[] = {"Content-Length: 10", "Content-Length: 10"};
    ReplyHeaders h = headers_of(two, 2);
    assert_int_equal(reply_headers_add(&h, "Content-Length: 11", 18), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),      cmocka_unit_test(test_long_error),
        cmocka_unit_test(test_list),        cmocka_unit_test(test_bad_lists),
        cmocka_unit_test(test_bounds),      cmocka_unit_test(test_uploads),
        cmocka_unit_test(test_multipart),   cmocka_unit_test(test_delete),
        cmocka_unit_test(test_headers),     cmocka_unit_test(test_composite),
        cmocka_unit_test(test_odd_headers), cmocka_unit_test(test_bad_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
