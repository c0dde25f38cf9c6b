/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - the etcd settings of all daemons: the endpoints, and a daemon's credentials for them.
 *
 * A daemon has an EtcdSettings in its struct of settings, and ETCD_SETTINGS(member) in its table. Settings that are
 * neither in the daemon's file nor on its command line come from the environment (SDTRAIN_ETCD, SDTRAIN_ETCD_CA, ...).
 *
 * Units: none. Threads: any.
 * Ownership: fixed buffers; the options borrow them.
 * Errors:    -EINVAL and errors of files, with "<source>: <key>: <what is wrong>".
 */
#pragma once

#include "base/json/settings.h"
#include "etcd/etcd.h"

enum { ETCD_SETTING_PATH_MAX = 512 };

typedef struct EtcdSettings {
    char endpoints[1024]; /* same form as SDTRAIN_ETCD */
    char ca[ETCD_SETTING_PATH_MAX], cert[ETCD_SETTING_PATH_MAX], key[ETCD_SETTING_PATH_MAX];
    char tls_name[256], user[128], password_file[ETCD_SETTING_PATH_MAX];
    char password[256]; /* from password_file or from the environment */
} EtcdSettings;

/* The rows of the settings table for `member`, the EtcdSettings in SETTINGS_STRUCT. */
#define ETCD_SETTINGS(member)                                                                      \
    SETTING_OF(TEXT, "etcd", member.endpoints, "endpoints, HOST:PORT,... ($SDTRAIN_ETCD)"),        \
        SETTING_OF(FILE, "etcd_ca", member.ca, "PEM file of the authority; turns TLS on"),         \
        SETTING_OF(FILE, "etcd_cert", member.cert, "PEM file of this client's certificate"),       \
        SETTING_OF(FILE, "etcd_key", member.key, "PEM file of its key"),                           \
        SETTING_OF(TEXT, "etcd_tls_name", member.tls_name,                                         \
                   "name in the members' certificates (each endpoint's host)"),                    \
        SETTING_OF(TEXT, "etcd_user", member.user, "user of etcd's authentication"),               \
        SETTING_OF(FILE, "etcd_password_file", member.password_file, "file with its password")

/* Takes values from the environment. To be called before the file and the command line are read. */
int etcd_settings_begin(EtcdSettings *ret, Error *err);
/* Checks the final settings, and reads the password. source names the origin of the settings in errors: "command line",
 * or the file. */
int etcd_settings_finish(EtcdSettings *settings, const char *source, Error *err);
EtcdOptions etcd_settings_options(const EtcdSettings *settings);
