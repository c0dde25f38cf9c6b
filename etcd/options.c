/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - where etcd is and how to prove who we are: from the environment, and the list of
 * endpoints. */
#include "base/file.h"
#include "etcd/etcd-internal.h"

#include <string.h>

enum { PASSWORD_BYTES_MAX = 4096 };

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int password_read(const char *path, const char **ret, Error *err)
{
    static char password[PASSWORD_BYTES_MAX + 1]; /* lives until exit, as the header promises */
    _cleanup_free_ char *text = NULL;
    size_t n = 0;

    int r = file_read(path, PASSWORD_BYTES_MAX, &text, &n, err);
    if (r < 0)
        return error_prefix(err, r, "SDTRAIN_ETCD_PASSWORD_FILE");
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    if (n == 0)
        return error_set(err, -EINVAL, "SDTRAIN_ETCD_PASSWORD_FILE: %s: it holds no password",
                         path);
    if (memchr(text, 0, n))
        return error_set(err, -EINVAL, "SDTRAIN_ETCD_PASSWORD_FILE: %s: it holds a NUL byte", path);
    memcpy(password, text, n);
    password[n] = 0;
    *ret = password;
    return 0;
}

int etcd_options_from_environment(EtcdOptions *ret, Error *err)
{
    EtcdOptions options = {
        .endpoints = environment("SDTRAIN_ETCD"),
        .ca_file = environment("SDTRAIN_ETCD_CA"),
        .cert_file = environment("SDTRAIN_ETCD_CERT"),
        .key_file = environment("SDTRAIN_ETCD_KEY"),
        .tls_name = environment("SDTRAIN_ETCD_TLS_NAME"),
        .user = environment("SDTRAIN_ETCD_USER"),
    };
    const char *password_file = environment("SDTRAIN_ETCD_PASSWORD_FILE");

    if (!options.cert_file != !options.key_file)
        return error_set(err, -EINVAL, "%s is set but %s is not: a client certificate needs both",
                         options.cert_file ? "SDTRAIN_ETCD_CERT" : "SDTRAIN_ETCD_KEY",
                         options.cert_file ? "SDTRAIN_ETCD_KEY" : "SDTRAIN_ETCD_CERT");
    if (options.cert_file && !options.ca_file)
        return error_set(err, -EINVAL,
                         "SDTRAIN_ETCD_CERT is set but SDTRAIN_ETCD_CA is not: TLS needs the CA");
    if (!options.user != !password_file)
        return error_set(err, -EINVAL, "%s is set but %s is not: a user needs both",
                         options.user ? "SDTRAIN_ETCD_USER" : "SDTRAIN_ETCD_PASSWORD_FILE",
                         options.user ? "SDTRAIN_ETCD_PASSWORD_FILE" : "SDTRAIN_ETCD_USER");
    if (password_file) {
        int r = password_read(password_file, &options.password, err);
        if (r < 0)
            return r;
    }
    *ret = options;
    return 0;
}

static int endpoint_check(const char *item, const char *address, bool tls, bool https, bool http,
                          Error *err)
{
    const char *colon = strrchr(address, ':');
    char *end = NULL;

    if (!colon || colon == address || (strchr(address, ':') != colon && address[0] != '['))
        return error_set(err, -EINVAL, "etcd endpoint \"%s\": want host:port", item);
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end || port == 0 || port > 65535)
        return error_set(err, -EINVAL, "etcd endpoint \"%s\": \"%s\" is no port", item, colon + 1);
    if (strspn(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]%") !=
        strlen(address))
        return error_set(err, -EINVAL, "etcd endpoint \"%s\": want host:port", item);
    if (https && !tls)
        return error_set(err, -EINVAL, "etcd endpoint \"%s\" wants TLS: set SDTRAIN_ETCD_CA", item);
    if (http && tls)
        return error_set(err, -EINVAL,
                         "etcd endpoint \"%s\" is plain but SDTRAIN_ETCD_CA asks for TLS", item);
    return 0;
}

int endpoints_parse(Etcd *etcd, const EtcdOptions *options, Error *err)
{
    if (!options->endpoints || !*options->endpoints)
        return error_set(err, -EINVAL, "no etcd endpoint: set SDTRAIN_ETCD=host:port,...");

    _cleanup_free_ char *text = memory_text(options->endpoints);
    char *position = text, *item;
    while ((item = strsep(&position, ","))) {
        item += strspn(item, " ");
        for (size_t n = strlen(item); n > 0 && (item[n - 1] == ' ' || item[n - 1] == '/'); n--)
            item[n - 1] = 0;
        bool http = !strncmp(item, "http://", 7), https = !strncmp(item, "https://", 8);
        const char *address = item + (http ? 7 : https ? 8 : 0);

        int r = endpoint_check(item, address, options->ca_file, https, http, err);
        if (r < 0)
            return r;
        if (etcd->n_endpoints == ETCD_ENDPOINTS_MAX)
            return error_set(err, -E2BIG, "more than %d etcd endpoints", ETCD_ENDPOINTS_MAX);
        etcd->endpoints[etcd->n_endpoints++].address = memory_text(address);
    }
    return 0;
}
