/* SPDX-License-Identifier: Apache-2.0 */
/* reply-headers.c - parses the headers of a reply (reply.h). */
#include "store/s3/protocol/reply.h"

#include <string.h>
#include <strings.h>
#include <time.h>

enum { VALUE_MAX = 2048, RETRY_AFTER_MAX = 86400 };

void reply_headers_init(ReplyHeaders *headers) { *headers = (ReplyHeaders){.retry_after_sec = -1}; }

/* ---- values ---- */

/* Parses digits at the start of the text, and returns their end in *ret_end. */
static bool parse_digits(const char *text, uint64_t *ret, const char **ret_end)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 18)
        return false;
    *ret = strtoull(text, NULL, 10);
    *ret_end = text + n;
    return true;
}

static bool parse_number(const char *text, uint64_t *ret)
{
    const char *end;
    uint64_t value;
    if (!parse_digits(text, &value, &end) || *end)
        return false;
    *ret = value;
    return true;
}

/* Parses "bytes 0-9/443", or "bytes 0-9/" followed by "*"; of a 416 reply, "bytes *" followed by "/443". */
static int parse_range(ReplyHeaders *h, const char *text)
{
    uint64_t first = 0, last = 0, size = 0;
    if (strncasecmp(text, "bytes ", 6) != 0)
        return -EBADMSG;
    const char *p = text + 6;
    bool has_range = *p != '*';
    if (!has_range)
        p++;
    else if (!parse_digits(p, &first, &p) || *p++ != '-' || !parse_digits(p, &last, &p))
        return -EBADMSG;
    if (*p++ != '/')
        return -EBADMSG;
    if (strcmp(p, "*") != 0 && !parse_number(p, &size))
        return -EBADMSG;
    bool has_size = *p != '*';
    if (has_range && (first > last || (has_size && last >= size)))
        return -EBADMSG;
    h->has_range = has_range;
    h->range_first = first;
    h->range_last = last;
    h->size = size;
    return 0;
}

/* Parses "Sun, 06 Nov 1994 08:49:37 GMT"; the two older forms of RFC 9110 are not used any more. */
static bool parse_date(const char *text, int64_t *ret)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm tm = {0};
    char month[4];
    int n = 0;
    if (sscanf(text, "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d GMT%n", &tm.tm_mday, month,
               &tm.tm_year, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &n) != 6 ||
        n == 0 || text[n] || strlen(month) != 3)
        return false;
    const char *found = strstr(months, month);
    if (!found || (found - months) % 3 != 0)
        return false;
    tm.tm_mon = (int)(found - months) / 3;
    tm.tm_year -= 1900;
    time_t seconds = timegm(&tm);
    if (seconds < 0)
        return false;
    *ret = seconds;
    return true;
}

/* Parses base64 of four bytes, big end first: "4waSgw==". */
static bool parse_crc32c(const char *text, uint32_t *ret)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint64_t bits = 0;
    if (strlen(text) != 8 || strcmp(text + 6, "==") != 0)
        return false;
    for (int i = 0; i < 6; i++) {
        const char *digit = strchr(digits, text[i]);
        if (!digit)
            return false;
        bits = bits << 6 | (uint64_t)(digit - digits);
    }
    if (bits & 15)
        return false;
    *ret = (uint32_t)(bits >> 4);
    return true;
}

static void set_text(char *ret, size_t size, const char *value)
{
    if (strlen(value) < size)
        snprintf(ret, size, "%s", value);
}

static void set_etag(ReplyHeaders *h, const char *value)
{
    char text[VALUE_MAX];
    const char *p = strncmp(value, "W/", 2) == 0 ? value + 2 : value;
    snprintf(text, sizeof(text), "%s", p);
    size_t n = strlen(text);
    bool quoted = n >= 2 && text[0] == '"' && text[n - 1] == '"';
    if (quoted)
        text[n - 1] = '\0';
    set_text(h->etag, sizeof(h->etag), text + quoted);
}

/* ---- lines ---- */

static int set_header(ReplyHeaders *h, const char *name, const char *value)
{
    uint64_t number;
    int64_t date;
    if (strcasecmp(name, "Content-Length") == 0) {
        if (!parse_number(value, &number) || (h->has_length && h->length != number))
            return -EBADMSG;
        h->has_length = true;
        h->length = number;
    } else if (strcasecmp(name, "Content-Range") == 0) {
        return parse_range(h, value);
    } else if (strcasecmp(name, "ETag") == 0) {
        set_etag(h, value);
    } else if (strcasecmp(name, "x-amz-server-side-encryption") == 0) {
        h->etag_opaque |= strncasecmp(value, "aws:kms", 7) == 0; /* AES256 keeps the MD5 as ETag */
    } else if (strcasecmp(name, "x-amz-server-side-encryption-customer-algorithm") == 0) {
        h->etag_opaque = true;
    } else if (strcasecmp(name, "x-amz-meta-sdtrain-put") == 0) {
        set_text(h->mark, sizeof(h->mark), value);
    } else if (strcasecmp(name, "Location") == 0) {
        set_text(h->location, sizeof(h->location), value);
    } else if (strcasecmp(name, "Date") == 0) {
        if (parse_date(value, &date))
            h->date = date;
    } else if (strcasecmp(name, "Last-Modified") == 0) {
        if (parse_date(value, &date))
            h->modified_usec = (uint64_t)date * USEC_PER_SEC;
    } else if (strcasecmp(name, "Retry-After") == 0) {
        if (parse_number(value, &number))
            h->retry_after_sec = (int64_t)MIN(number, (uint64_t)RETRY_AFTER_MAX);
    } else if (strcasecmp(name, "x-amz-bucket-region") == 0) {
        set_text(h->region, sizeof(h->region), value);
    } else if (strcasecmp(name, "x-amz-request-id") == 0) {
        set_text(h->request_id, sizeof(h->request_id), value);
    } else if (strcasecmp(name, "x-amz-checksum-crc32c") == 0) {
        h->has_crc32c = !h->composite && parse_crc32c(value, &h->crc32c);
    } else if (strcasecmp(name, "x-amz-checksum-type") == 0) {
        h->composite = strcasecmp(value, "COMPOSITE") == 0;
        h->has_crc32c = h->has_crc32c && !h->composite;
    }
    return 0;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

int reply_headers_add(ReplyHeaders *headers, const char *line, size_t n_bytes)
{
    while (n_bytes > 0 && is_blank(line[n_bytes - 1]))
        n_bytes--;
    if (n_bytes >= 5 && strncmp(line, "HTTP/", 5) == 0) {
        reply_headers_init(headers);
        return 0;
    }
    const char *colon = n_bytes > 0 ? memchr(line, ':', n_bytes) : NULL;
    char name[64];
    if (!colon || (size_t)(colon - line) >= sizeof(name))
        return 0;
    snprintf(name, sizeof(name), "%.*s", (int)(colon - line), line);

    const char *p = colon + 1, *end = line + n_bytes;
    while (p < end && is_blank(*p))
        p++;
    char value[VALUE_MAX];
    size_t n = (size_t)(end - p);
    bool good = n < sizeof(value);
    for (size_t i = 0; i < n && good; i++)
        good = (uint8_t)p[i] >= 0x20 && p[i] != 0x7f;
    if (!good)
        n = 0; /* none of these headers may have an empty value */
    memcpy(value, p, n);
    value[n] = '\0';
    return set_header(headers, name, value);
}
