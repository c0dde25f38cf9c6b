/* SPDX-License-Identifier: Apache-2.0 */
/* secret-set.h - the secrets that a party was handed, and taking them out of what that party says.
 *
 * A server that refuses a request may quote it, with its token, its password, its secret path. The server's text goes
 * into logs, journals, records and pages, which more people read than the file of the secret.
 *
 * A secret is found as it is; with any of its characters escaped for a URL (%2F), for JSON (\/, \u002f) or for HTML
 * (&#47;, &amp;); and in base64, also where it is a part of what was encoded ("user:password"). At the end of a text,
 * which may have been cut, a secret's beginning is enough. Three asterisks replace a secret. A secret shorter than
 * SECRET_BYTES_MIN is not looked for: a word of three letters is in every other text.
 *
 * Ownership: a SecretSet of zeroes is empty; it has copies of its own, which secret_set_clear() wipes and frees.
 * Units:     bytes.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "base/macro.h"

enum { SECRETS_MAX = 32, SECRET_BYTES_MIN = 4 };

typedef struct SecretSet {
    char *texts[SECRETS_MAX];
    size_t n;
} SecretSet;

/* Adds a secret and, where it has %XX, also the secret with them decoded. NULL, or a secret that is in the set already,
 * adds nothing. A set of SECRETS_MAX forgets its oldest secret for a new one. */
void secret_set_add(SecretSet *set, const char *secret);
/* Adds what a URL has beside its scheme and host: user and password, the path with its query, and each long part of
 * these. */
void secret_set_add_url(SecretSet *set, const char *url);
/* Adds only the user and the password of a URL. */
void secret_set_add_url_user(SecretSet *set, const char *url);
void secret_set_clear(SecretSet *set);
/* Replaces the secrets in the text, in place; the text never grows. */
void secret_set_take_out(const SecretSet *set, char *text);
