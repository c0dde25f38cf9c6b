/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c - see answer.h.
 *
 * HTTP: 2xx means accepted. The message is sent again after no reply at all, 408, 425, 429 or 5xx. Any other status,
 *       also a redirect, means refused: sending the same message to the same address again would not help.
 *
 * SMTP: a mail that the server refuses for now (4xx: busy, greylisted) is sent again; 5xx means refused (no such
 *       user, wrong password). */
#include "controller/alerting/answer.h"

#include "base/memory.h"

#include <jansson.h>
#include <string.h>

/* Returns the error text of a JSON reply, or NULL. PagerDuty sends {"message":"...","errors":["..."]}, Alertmanager
 * a JSON string, other servers send anything. */
static const char *find_words(json_t *root)
{
    const char *errors = json_string_value(json_array_get(json_object_get(root, "errors"), 0));
    const char *message = json_string_value(json_object_get(root, "message"));
    return errors ? errors : message ? message : json_string_value(root);
}

/* Removes secrets before the text is cut: half a secret would not be recognised. */
static void write_words(Answer *a, const char *protocol, int status, const char *words, size_t n,
                        const SecretSet *secrets)
{
    _cleanup_free_ char *said = memory_bytes(words, n);
    for (size_t i = 0; i < n; i++)
        if (said[i] < 0x20 || said[i] == 0x7f)
            said[i] = ' ';
    secret_set_take_out(secrets, said);
    (void)snprintf(a->text, sizeof(a->text), "%s %d%s%s", protocol, status, n ? ": " : "", said);
}

static void write_failure(Answer *a, const char *failure, const SecretSet *secrets)
{
    _cleanup_free_ char *said = memory_text(failure);
    secret_set_take_out(secrets, said);
    (void)snprintf(a->text, sizeof(a->text), "%s", said);
}

void answer_read(const HttpReply *reply, const SecretSet *secrets, Answer *ret)
{
    *ret = (Answer){.kind = ANSWER_AGAIN};
    if (reply->status == 0) {
        write_failure(ret, reply->failure, secrets);
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
        write_words(ret, "HTTP", reply->status, words, strlen(words), secrets);
    else
        write_words(ret, "HTTP", reply->status, reply->body, reply->n_body, secrets);
    json_decref(root);
}

void answer_read_mail(const MailReply *reply, const SecretSet *secrets, Answer *ret)
{
    *ret = (Answer){.kind = ANSWER_AGAIN};
    if (reply->status == 0) {
        write_failure(ret, reply->failure, secrets);
        return;
    }
    ret->kind = reply->status / 100 == 2   ? ANSWER_ACCEPTED
                : reply->status / 100 == 5 ? ANSWER_REFUSED
                                           : ANSWER_AGAIN;
    const char *words = reply->words;
    size_t code = strspn(words, "0123456789"); /* words begin as "550 5.1.1 ..." or "550-..." */
    words += code + (words[code] == ' ' || words[code] == '-');
    if (ret->kind != ANSWER_ACCEPTED)
        write_words(ret, "SMTP", reply->status, words, strlen(words), secrets);
}
