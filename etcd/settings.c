/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - see settings.h. */
#include "etcd/settings.h"

#include <string.h>

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
