/* SPDX-License-Identifier: Apache-2.0 */
/* slack.c - see slack.h. Slack refuses a header of more than 150 characters, a text of more than 3,000, a field of
 * more than 2,000, and an empty text or field. A record's names and evidence stay below these limits even if each
 * byte is escaped. */
#include "controller/alerting/slack.h"

#include "base/json/json.h"
#include "base/memory.h"

#include <string.h>

enum { HEADER_BYTES = 150, FIELDS_MAX = 6, SPAN_BYTES = 32 };

/* Escapes '&', '<' and '>': no other character of a text has a meaning in Slack's markup. The caller frees the
 * result. */
static char *escape(const char *text)
{
    char *ret = memory_zeroed(strlen(text) * 5 + 1, 1), *to = ret;
    for (; *text; text++)
        switch (*text) {
        case '&':
            to = stpcpy(to, "&amp;");
            break;
        case '<':
            to = stpcpy(to, "&lt;");
            break;
        case '>':
            to = stpcpy(to, "&gt;");
            break;
        default:
            *to++ = *text;
        }
    return ret;
}

static json_t *mrkdwn(const char *title, const char *text)
{
    _cleanup_free_ char *escaped = escape(text);
    _cleanup_free_ char *all = memory_format("*%s*\n%s", title, escaped);
    return json_pack("{s:s, s:s}", "type", "mrkdwn", "text", all);
}

static json_t *section(const char *title, const char *text)
{
    return json_pack("{s:s, s:o}", "type", "section", "text", mrkdwn(title, text));
}

/* Formats a time in the reader's own time zone; a Slack client that cannot do so shows the text after the bar. */
static json_t *moment(const char *title, uint64_t usec)
{
    char at[PAYLOAD_TIME_BYTES];
    _cleanup_free_ char *all =
        memory_format("*%s*\n<!date^%llu^{date_num} {time_secs}|%s>", title,
                      (unsigned long long)(usec / USEC_PER_SEC), payload_time(usec, at));
    return json_pack("{s:s, s:s}", "type", "mrkdwn", "text", all);
}

static json_t *fields(const PayloadCall *call)
{
    const IncidentRecord *i = call->incident;
    json_t *all = json_array();
    json_array_append_new(all, mrkdwn("Severity", severity_name(i->severity)));
    json_array_append_new(all, mrkdwn("Cluster", call->cluster));
    if (i->job[0])
        json_array_append_new(all, mrkdwn("Job", i->job));
    if (i->node[0])
        json_array_append_new(all, mrkdwn("Node", i->node));
    json_array_append_new(all, moment("Since", i->at_usec));
    if (call->message_kind == NOTIFY_RESOLVE && i->resolved_usec)
        json_array_append_new(all, moment("Over since", i->resolved_usec));
    assert(json_array_size(all) <= FIELDS_MAX);
    return json_pack("{s:s, s:o}", "type", "section", "fields", all);
}

static json_t *header(const PayloadCall *call)
{
    const IncidentRecord *i = call->incident;
    char text[HEADER_BYTES + 1];
    bool over = call->message_kind == NOTIFY_RESOLVE;
    (void)snprintf(text, sizeof(text), "%s: %s%s%s", over ? "resolved" : severity_name(i->severity),
                   i->cause, i->node[0] ? " on " : "", i->node);
    return json_pack("{s:s, s:{s:s, s:s, s:b}}", "type", "header", "text", "type", "plain_text",
                     "text", text, "emoji", 0);
}

/* Formats the link to a runbook. '|' and '>' would end the address, so they are encoded; no other character of a
 * printable address (alerts-file.c) has a meaning in Slack. */
static json_t *runbook(const char *link)
{
    char url[PAYLOAD_LINK_BYTES * 3], *to = url;
    for (; *link; link++)
        if (strchr("<>|", *link))
            to += snprintf(to, 4, "%%%02X", (unsigned)*link);
        else
            *to++ = *link;
    *to = '\0';
    _cleanup_free_ char *escaped = escape(url);
    _cleanup_free_ char *all = memory_format("<%s|Runbook>", escaped);
    return json_pack("{s:s, s:{s:s, s:s}}", "type", "section", "text", "type", "mrkdwn", "text",
                     all);
}

json_t *slack_body(const PayloadCall *call, const char *key)
{
    const IncidentRecord *i = call->incident;
    char link[PAYLOAD_LINK_BYTES];
    _cleanup_free_ char *plain = payload_text(call);
    _cleanup_free_ char *text = escape(plain);
    json_t *blocks = json_array();
    json_array_append_new(blocks, header(call));
    json_array_append_new(blocks, fields(call));
    if (i->evidence[0])
        json_array_append_new(blocks, section("What happened", i->evidence));
    if (call->message_kind != NOTIFY_RESOLVE)
        json_array_append_new(blocks, section("What to do", payload_advice(i)));
    if (payload_link(call->file, i, link)[0])
        json_array_append_new(blocks, runbook(link));
    json_array_append_new(blocks, json_pack("{s:s, s:[{s:s, s:s}]}", "type", "context", "elements",
                                            "type", "plain_text", "text", key));
    return json_pack("{s:s, s:o}", "text", text, "blocks", blocks);
}
