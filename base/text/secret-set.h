/* SPDX-License-Identifier: Apache-2.0 */
/* secret-set.h - a set of the secrets that a peer was sent, and their removal from texts of that peer.
 *
 * A server that refuses a request may quote it, with its token, its password, its secret path. The server's text is
 * copied to logs, journals, records and pages, which more people can read than the file of the secret.
 *
 * A secret is found as it is; with any of its characters escaped for a URL (%2F), for JSON (\/, \u002f) or for HTML
 * (&#47;, &amp;); and in base64, even if it is only a part of the encoded text ("user:password"). At the end of a text,
 * which may have been cut, the beginning of a secret is enough. Three asterisks replace a secret. A secret shorter than
 * SECRET_BYTES_MIN is not removed: a word of three letters is common in other texts.
 *
 * Units: bytes. Errors: none. Threads: one at a time.
 * Ownership: a SecretSet of zeroes is empty; it has its own copies, which secret_set_clear() wipes and frees.
 */
#pragma once

#include "base/macro.h"

enum { SECRETS_MAX = 32, SECRET_BYTES_MIN = 4 };

typedef struct SecretSet {
    char *texts[SECRETS_MAX];
    size_t n;
} SecretSet;

/* Adds a secret; if it has %XX escapes, adds the decoded secret, too. NULL, and a secret that is in the set already,
 * are ignored. A full set (SECRETS_MAX) drops its oldest secret for a new one. */
void secret_set_add(SecretSet *set, const char *secret);
/* Adds the parts of a URL except scheme and host: user and password, the path with its query, and each long part of
 * that path. */
void secret_set_add_url(SecretSet *set, const char *url);
/* Adds only the user and the password of a URL. */
void secret_set_add_url_user(SecretSet *set, const char *url);
void secret_set_clear(SecretSet *set);
/* Replaces the secrets in the text, in place; the text never grows. A text without secrets is not written to. */
void secret_set_take_out(const SecretSet *set, char *text);
