/* SPDX-License-Identifier: Apache-2.0 */
/* proxy.c - see proxy.h. libcurl 7.88 cannot report which proxy it used, so this file repeats libcurl's rules. */
#include "base/proxy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct Host {
    const char *name; /* an IPv6 address is without its brackets */
    size_t n;
} Host;

static Host host_of(const char *url)
{
    const char *begin = strstr(url, "://");
    begin = begin ? begin + 3 : url;
    size_t n = strcspn(begin, "/?#");
    const char *at = memrchr(begin, '@', n);
    if (at) {
        n -= (size_t)(at + 1 - begin);
        begin = at + 1;
    }
    if (*begin == '[')
        return (Host){begin + 1, strcspn(begin + 1, "]")};
    const char *colon = memchr(begin, ':', n);
    return (Host){begin, colon ? (size_t)(colon - begin) : n};
}

/* Tells whether an entry of no_proxy covers the host. An entry is a domain, with or without a leading dot, or an
 * address. An entry with a '/' is a range of addresses. The range is not parsed, and counts as covering every host. */
static bool is_passed_by(const char *entry, size_t n, Host host)
{
    if (memchr(entry, '/', n))
        return true;
    if (n > 0 && *entry == '[') {
        entry++;
        n -= 2;
    }
    if (n > 0 && *entry == '.') {
        entry++;
        n--;
    }
    if (n == 0 || n > host.n || strncasecmp(host.name + host.n - n, entry, n) != 0)
        return false;
    return n == host.n || host.name[host.n - n - 1] == '.';
}

static bool is_direct(const char *url)
{
    const char *list = getenv("no_proxy");
    if (!list)
        list = getenv("NO_PROXY");
    if (!list)
        return false;
    if (strcmp(list, "*") == 0)
        return true;
    for (const char *p = list; *p;) {
        p += strspn(p, ", \t");
        size_t n = strcspn(p, ", \t");
        if (n > 0 && is_passed_by(p, n, host_of(url)))
            return true;
        p += n;
    }
    return false;
}

const char *proxy_named(const char *url, char ret[PROXY_TEXT_BYTES])
{
    /* Upper-case HTTP_PROXY is ignored: in a CGI program it holds a header of the request. */
    static const char *const of_http[] = {"http_proxy", "all_proxy", "ALL_PROXY", NULL},
                             *const of_https[] = {"https_proxy", "HTTPS_PROXY", "all_proxy",
                                                  "ALL_PROXY", NULL};
    const char *const *name = strncasecmp(url, "https:", 6) == 0 ? of_https : of_http;
    const char *proxy = NULL;
    *ret = '\0';
    while (*name && !(proxy = getenv(*name)))
        name++;
    if (!proxy || !*proxy || is_direct(url))
        return ret;
    const char *scheme = strstr(proxy, "://"), *at = strrchr(proxy, '@');
    int n_scheme = scheme ? (int)(scheme + 3 - proxy) : 0;
    const char *place = at ? at + 1 : proxy + n_scheme;
    (void)snprintf(ret, PROXY_TEXT_BYTES, ", through the proxy %.*s%.*s of %s", MIN(n_scheme, 16),
                   proxy, (int)MIN(strcspn(place, "/?#"), (size_t)100), place, *name);
    return ret;
}

void proxy_add_secrets(SecretSet *set)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                        "ALL_PROXY"};
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        const char *proxy = getenv(names[i]);
        if (proxy)
            secret_set_add_url_user(set, proxy);
    }
}
