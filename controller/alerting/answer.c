/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c - see answer.h.
 *
 * 2xx is an acceptance. Try again: no reply at all, 408, 425, 429 and 5xx. Everything else, and a
 * redirect too, is refused: the same message will fare no better at the same address.
 *
 * A mail that a server refuses for now (4xx: busy, greylisted) is tried again; 5xx is refused (no such user, wrong
 * password). */
#include "controller/alerting/answer.h"

#include <jansson.h>
#include <string.h>

/* PagerDuty says {"message":"...","errors":["..."]}; Alertmanager a JSON string; others anything. */
static const char *find_words(json_t *root)
{
    const char *errors = json_string_value(json_array_get(json_object_get(root, "errors"), 0));
    const char *message = json_string_value(json_object_get(root, "message"));
    return errors ? errors : message ? message : json_string_value(root);
}

static void say(Answer *a, const char *protocol, int status, const char *words, size_t n)
{
    int used = snprintf(a->text, sizeof(a->text), "%s %d%s", protocol, status, n ? ": " : "");
    for (size_t i = 0; i < n && (size_t)used + 1 < sizeof(a->text); i++) {
        unsigned char c = (unsigned char)words[i];
        a->text[used++] = c >= 0x20 && c < 0x7f ? (char)c : ' ';
    }
    a->text[used] = '\0';
}

void answer_read(const HttpReply *reply, Answer *ret)
{
    *ret = (Answer){.kind = ANSWER_AGAIN};
    if (reply->status == 0) {
        (void)snprintf(ret->text, sizeof(ret->text), "%s", reply->failure);
        return;
    }
    if (reply->status / 100 == 2) {
        ret->kind = ANSWER_ACCEPTED;
        return;
    }
    bool again = reply->status == 408 || reply->status == 425 || reply->status == 429 ||
                 reply->status / 100 == 5;
    ret->kind = again ? ANSWER_AGAIN : ANSWER_REFUSED;
    if (again && reply->retry_after_sec > 0)
        ret->pause_usec = (uint64_t)MIN(reply->retry_after_sec, INT64_C(86400)) * USEC_PER_SEC;
    json_t *root =
        reply->n_body ? json_loadb(reply->body, reply->n_body, JSON_DECODE_ANY, NULL) : NULL;
    const char *words = root ? find_words(root) : NULL;
    if (words)
        say(ret, "HTTP", reply->status, words, strlen(words));
    else
        say(ret, "HTTP", reply->status, reply->body, reply->n_body);
    json_decref(root);
}

void answer_read_mail(const MailReply *reply, Answer *ret)
{
    *ret = (Answer){.kind = ANSWER_AGAIN};
    if (reply->status == 0) {
        (void)snprintf(ret->text, sizeof(ret->text), "%s", reply->failure);
        return;
    }
    ret->kind = reply->status / 100 == 2   ? ANSWER_ACCEPTED
                : reply->status / 100 == 5 ? ANSWER_REFUSED
                                           : ANSWER_AGAIN;
    const char *words = reply->words;
    size_t code = strspn(words, "0123456789"); /* "550 5.1.1 ..." or "550-..." */
    words += code + (words[code] == ' ' || words[code] == '-');
    if (ret->kind != ANSWER_ACCEPTED)
        say(ret, "SMTP", reply->status, words, strlen(words));
}
