/* SPDX-License-Identifier: Apache-2.0 */
/* proxy.h - names the proxy that libcurl takes from the environment, for the text of a failure: "Failed to connect to
 * 127.0.0.1 port 9" says nothing of a variable that somebody set years ago.
 *
 * Ownership: the text is the caller's.
 * Units:     none.
 * Errors:    none; where it is not certain that there is a proxy, none is named.
 * Threads:   any, as long as nobody changes the environment.
 */
#pragma once

#include "base/text/secret-set.h"

enum { PROXY_TEXT_BYTES = 192 };

/* ", through the proxy http://127.0.0.1:9 of http_proxy", without a password; "": the URL is asked directly. */
const char *proxy_named(const char *url, char ret[PROXY_TEXT_BYTES]);
/* Adds users and passwords of all proxies of the environment: libcurl and the proxy itself may repeat them. */
void proxy_add_secrets(SecretSet *set);
