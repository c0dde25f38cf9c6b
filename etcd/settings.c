/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - see settings.h; also reads the options of etcd.h from the environment. */
#include "etcd/settings.h"

#include "base/file.h"

#include <string.h>

enum { PASSWORD_BYTES_MAX = 4096 };

/* ---- the environment ---- */

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int password_read(const char *path, const char **ret, Error *err)
{
    static char password[PASSWORD_BYTES_MAX + 1]; /* valid until exit, as etcd.h promises */
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

/* ---- the settings of a daemon ---- */

int etcd_settings_begin(EtcdSettings *s, Error *err)
{
    EtcdOptions environment;
    int r = etcd_options_from_environment(&environment, err);
    if (r < 0)
        return r;
    const struct {
        const char *name, *from;
        char *to;
        size_t size;
    } texts[] = {
        {"", environment.endpoints, s->endpoints, sizeof(s->endpoints)},
        {"_CA", environment.ca_file, s->ca, sizeof(s->ca)},
        {"_CERT", environment.cert_file, s->cert, sizeof(s->cert)},
        {"_KEY", environment.key_file, s->key, sizeof(s->key)},
        {"_TLS_NAME", environment.tls_name, s->tls_name, sizeof(s->tls_name)},
        {"_USER", environment.user, s->user, sizeof(s->user)},
        {"_PASSWORD_FILE", environment.password, s->password, sizeof(s->password)},
    };
    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        if (texts[i].from &&
            (size_t)snprintf(texts[i].to, texts[i].size, "%s", texts[i].from) >= texts[i].size)
            return error_set(err, -EINVAL, "SDTRAIN_ETCD%s: longer than %zu bytes", texts[i].name,
                             texts[i].size - 1);
    return 0;
}

int etcd_settings_finish(EtcdSettings *s, const char *source, Error *err)
{
    if (!*s->endpoints)
        return error_set(err, -EINVAL,
                         "%s: etcd: missing; name the endpoints there, by --etcd HOST:PORT or in "
                         "SDTRAIN_ETCD",
                         source);
    if (!*s->cert != !*s->key)
        return error_set(err, -EINVAL, "%s: etcd_%s: missing, though etcd_%s is %s", source,
                         *s->cert ? "key" : "cert", *s->cert ? "cert" : "key",
                         *s->cert ? s->cert : s->key);
    if (!*s->password_file)
        return 0;
    int r = settings_read_line(s->password_file, s->password, sizeof(s->password), err);
    return r < 0 ? error_prefix(err, r, "%s: etcd_password_file", source) : 0;
}

EtcdOptions etcd_settings_options(const EtcdSettings *s)
{
    return (EtcdOptions){.endpoints = s->endpoints,
                         .ca_file = *s->ca ? s->ca : NULL,
                         .cert_file = *s->cert ? s->cert : NULL,
                         .key_file = *s->key ? s->key : NULL,
                         .tls_name = *s->tls_name ? s->tls_name : NULL,
                         .user = *s->user ? s->user : NULL,
                         .password = *s->password ? s->password : NULL};
}
