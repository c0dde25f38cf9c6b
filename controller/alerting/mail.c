/* SPDX-License-Identifier: Apache-2.0 */
/* mail.c - see mail.h. */
#include "controller/alerting/mail.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    /* The greatest length of a line of quoted-printable text (including the '=' of a soft break), and of a header line
     * in encoded words. */
    LINE_COLUMNS = 76,
    SUBJECT_BYTES = 400,
};

/* ---- encodings ---- */

static bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x7f; }

/* Writes one character, which has n bytes, into an encoded word. */
static void put_word(FILE *f, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fprintf(f, "=%02X", (unsigned char)bytes[i]);
}

/* Writes "name: text", either as it is or as encoded words, each of which holds whole characters only. */
static void put_header(FILE *f, const char *name, const char *text)
{
    static const char begin[] = "=?utf-8?Q?", end[] = "?=";
    bool plain = !strstr(text, "=?");
    for (const char *p = text; *p; p++)
        plain &= is_plain((unsigned char)*p);
    fprintf(f, "%s: %s", name, plain ? text : begin);
    size_t column = strlen(name) + 2 + strlen(begin);
    for (const char *p = text; *p && !plain;) {
        size_t n = 1;
        while ((p[n] & 0xc0) == 0x80)
            n++;
        bool bare = n == 1 && is_plain((unsigned char)*p) && !strchr("=?_ ", *p);
        size_t columns = bare ? 1 : 3 * n;
        if (column + columns + strlen(end) > LINE_COLUMNS) {
            fprintf(f, "%s\r\n %s", end, begin);
            column = 1 + strlen(begin);
        }
        if (bare)
            fputc(*p, f);
        else
            put_word(f, p, n);
        column += columns;
        p += n;
    }
    fprintf(f, "%s\r\n", plain ? "" : end);
}

/* Writes text as quoted-printable. The last blank of a line is encoded, because servers may cut it off. */
static void put_body(FILE *f, const char *text)
{
    int column = 0;
    for (const char *p = text; *p; p++) {
        if (*p == '\n') {
            fputs("\r\n", f);
            column = 0;
            continue;
        }
        bool last = p[1] == '\n' || p[1] == '\0';
        bool bare = is_plain((unsigned char)*p) && *p != '=' && !(*p == ' ' && last);
        int columns = bare ? 1 : 3;
        if (column + columns > LINE_COLUMNS - 1) {
            fputs("=\r\n", f);
            column = 0;
        }
        if (bare)
            fputc(*p, f);
        else
            fprintf(f, "=%02X", (unsigned char)*p);
        column += columns;
    }
}

/* ---- headers ---- */

static void put_id(FILE *f, const PayloadCall *call, const char *key, const char *more)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-/";
    const char *domain = strchr(call->file->sinks[call->sink].from, '@') + 1;
    fputc('<', f);
    /* The dots of a name are replaced, too, because a Message-ID must not have two dots in a row. */
    for (; *key; key++)
        fputc(strchr(plain, *key) ? *key : '_', f);
    fprintf(f, "%s%s@%s>\r\n", *more ? "." : "", more, domain);
}

/* Writes the mail's Message-ID and the headers of its thread. The id of the first mail about an incident is made of
 * the key only; later mails about the incident refer to that id. */
static void put_thread(FILE *f, const PayloadCall *call, const char *key)
{
    const Severity now = call->incident->severity;
    const char *more = call->message_kind == NOTIFY_RESOLVE ? "resolved"
                       : call->told != now                  ? severity_name(now)
                                                            : "";
    fputs("Message-ID: ", f);
    put_id(f, call, key, more);
    if (!*more)
        return;
    fputs("In-Reply-To: ", f);
    put_id(f, call, key, "");
    fputs("References: ", f);
    put_id(f, call, key, "");
}

static void put_headers(FILE *f, const PayloadCall *call, const char *key)
{
    const Sink *sink = &call->file->sinks[call->sink];
    const IncidentRecord *i = call->incident;
    time_t seconds = (time_t)(call->real_usec / USEC_PER_SEC);
    struct tm tm;
    char date[64] = "", subject[SUBJECT_BYTES];
    if (gmtime_r(&seconds, &tm))
        (void)strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S +0000",
                       &tm); /* the buffer is large enough */
    bool over = call->message_kind == NOTIFY_RESOLVE;
    (void)snprintf(subject, sizeof(subject), "[%s] %s: %s%s%s%s%s", call->cluster,
                   over ? "resolved" : severity_name(i->severity), i->cause,
                   i->node[0] ? " on " : "", i->node, i->job[0] ? ", job " : "", i->job);
    fprintf(f, "Date: %s\r\nFrom: <%s>\r\nTo: ", date, sink->from);
    for (size_t k = 0; k < json_array_size(sink->to); k++)
        fprintf(f, "%s<%s>", k ? ",\r\n " : "", json_string_value(json_array_get(sink->to, k)));
    fputs("\r\n", f);
    put_header(f, "Subject", subject);
    put_thread(f, call, key);
    fputs("Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n"
          "Content-Type: text/plain; charset=utf-8\r\n"
          "Content-Transfer-Encoding: quoted-printable\r\n\r\n",
          f);
}

/* ---- the text ---- */

static void put_line(FILE *f, const char *title, const char *text)
{
    if (*text)
        fprintf(f, "%-14s%s\n", title, text);
}

static void put_span(FILE *f, const IncidentRecord *i)
{
    char at[PAYLOAD_TIME_BYTES];
    uint64_t sec = (MAX(i->resolved_usec, i->at_usec) - i->at_usec) / USEC_PER_SEC;
    fprintf(f, "%-14s%s, after %llu min %llu s\n",
            "Over since:", payload_time(i->resolved_usec, at), (unsigned long long)(sec / 60),
            (unsigned long long)(sec % 60));
}

static char *body(const PayloadCall *call, const char *key)
{
    const IncidentRecord *i = call->incident;
    char link[PAYLOAD_LINK_BYTES], at[PAYLOAD_TIME_BYTES], *text = NULL;
    size_t n;
    bool over = call->message_kind == NOTIFY_RESOLVE;
    FILE *f = memory_given(open_memstream(&text, &n));
    fprintf(f, "%s%s%s%s%s%s\n\n", over ? "It is over: " : "", i->cause, i->node[0] ? " on " : "",
            i->node, i->evidence[0] ? ": " : "", i->evidence);
    put_line(f, "Severity:", severity_name(i->severity));
    put_line(f, "Cluster:", call->cluster);
    put_line(f, "Job:", i->job);
    put_line(f, "Node:", i->node);
    if (i->rank >= 0)
        fprintf(f, "%-14s%d\n", "Rank:", i->rank);
    if (i->job[0])
        fprintf(f, "%-14s%lld, %lld lost\n", "Step:", (long long)i->step, (long long)i->lost_steps);
    put_line(f, "Since:", payload_time(i->at_usec, at));
    if (over && i->resolved_usec)
        put_span(f, i);
    if (!over)
        fprintf(f, "\nWhat to do: %s\n", payload_advice(i));
    if (payload_link(call->file, i, link)[0])
        fprintf(f, "\n%s\n", link);
    fprintf(f, "\n-- \nincident %s\n", key);
    (void)fclose(f); /* cannot fail: a stream in memory has nothing to flush */
    return memory_given(text);
}

char *mail_text(const PayloadCall *call, const char *key)
{
    char *text = NULL;
    size_t n;
    _cleanup_free_ char *plain = body(call, key);
    FILE *f = memory_given(open_memstream(&text, &n));
    put_headers(f, call, key);
    put_body(f, plain);
    (void)fclose(f); /* cannot fail: a stream in memory has nothing to flush */
    return memory_given(text);
}
