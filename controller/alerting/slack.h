/* SPDX-License-Identifier: Apache-2.0 */
/* slack.h - a notification as the message of a Slack incoming webhook: text for the phone's lock screen, blocks for
 * the channel.
 *
 * Ownership: the caller gets a reference.
 * Units:     none.
 * Errors:    NULL: a text is not UTF-8.
 * Source:    Slack "Sending messages using incoming webhooks", "Block Kit", "Formatting text for app surfaces".
 */
#pragma once

#include "controller/alerting/payload-text.h"

json_t *slack_body(const PayloadCall *call, const char *key);
