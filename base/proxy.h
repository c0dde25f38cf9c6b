/* SPDX-License-Identifier: Apache-2.0 */
/* proxy.h - names the proxy that libcurl takes from the environment, for error texts: "Failed to connect to 127.0.0.1
 * port 9" does not show that a variable, perhaps set years ago, names this proxy.
 *
 * Ownership: the text belongs to the caller.
 * Units:     none.
 * Errors:    none; unless it is certain that a proxy is used, none is named.
 * Threads:   any, as long as no thread changes the environment.
 */
#pragma once

#include "base/text/secret-set.h"

enum { PROXY_TEXT_BYTES = 192 };

/* Returns ret: ", through the proxy http://127.0.0.1:9 of http_proxy", without a password; "" if the URL is requested
 * directly. */
const char *proxy_named(const char *url, char ret[PROXY_TEXT_BYTES]);
/* Adds users and passwords of all proxies in the environment: messages of libcurl and of the proxy may quote them. */
void proxy_add_secrets(SecretSet *set);
