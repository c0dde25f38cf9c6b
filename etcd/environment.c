/* SPDX-License-Identifier: Apache-2.0 */
/* environment.c - where etcd is and how to prove who we are, as a program's environment says. */
#include "base/file.h"
#include "etcd/etcd.h"

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
