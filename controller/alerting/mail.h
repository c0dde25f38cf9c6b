/* SPDX-License-Identifier: Apache-2.0 */
/* mail.h - a notification as an Internet message: headers, and a text of plain UTF-8.
 *
 * The Message-ID is made of the dedup key, so what is sent twice is one message, and the mail that resolves an
 * incident, or tells that it has become more severe, is an answer to the one that opened it.
 *
 * Ownership: the caller frees the text.
 * Units:     none.
 * Errors:    none: any byte of a record is encoded, and none can begin a header.
 * Threads:   any.
 * Source:    RFC 5322 (message), RFC 2045 6.7 (quoted-printable), RFC 2047 (encoded words), RFC 3834 (Auto-Submitted).
 */
#pragma once

#include "controller/alerting/payload-text.h"

/* Lines end with CR LF, the last one too. key: as notifier_dedup_key() makes it. */
char *mail_text(const PayloadCall *call, const char *key);
