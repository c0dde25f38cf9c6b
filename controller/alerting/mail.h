/* SPDX-License-Identifier: Apache-2.0 */
/* mail.h - a notification as an Internet message: headers, and a text of plain UTF-8.
 *
 * The Message-ID is made of the dedup key, so a mail that is sent twice counts as one message. The mail that resolves
 * an incident, or reports that the incident has become more severe, is a reply to the mail that opened the incident.
 *
 * Ownership: the caller frees the text.
 * Units:     none.
 * Errors:    none: every byte of a record is encoded, so that no byte can begin a header.
 * Source:    RFC 5322 (message), RFC 2045 6.7 (quoted-printable), RFC 2047 (encoded words), RFC 3834
 *            (Auto-Submitted).
 */
#pragma once

#include "controller/alerting/payload-text.h"

/* Every line ends with CR LF, also the last one. key is from notifier_dedup_key(). */
char *mail_text(const PayloadCall *call, const char *key);
