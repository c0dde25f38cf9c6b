/* SPDX-License-Identifier: Apache-2.0 */
/* alerts-file.c - see alerts-file.h. */
#include "controller/alerting/alerts-file.h"

#include "base/file.h"
#include "base/json/json.h"
#include "base/json/settings.h"
#include "base/log.h"
#include "base/proxy.h"
#include "cluster/keys.h"

#include <string.h>
#include <sys/stat.h>

enum {
    FILE_BYTES_MAX = 1 << 16,
    LABEL_TEXT_MAX = 255,
    ADDRESS_BYTES_MAX = 254,
    LOCAL_BYTES_MAX = 64
};

static const char pagerduty_url[] = "https://events.pagerduty.com/v2/enqueue";
static const char alertmanager_path[] = "/api/v2/alerts";

static const char *const kinds[] = {"pagerduty", "alertmanager", "webhook",
                                    "heartbeat", "slack",        "email"};

/* Labels that payload.c sets itself: a sink's own labels must not have these names. */
static const char *const own_labels[] = {"alertname", "cluster", "incident", "cause",
                                         "severity",  "job",     "node"};

void alerts_file_clear(AlertsFile *file)
{
    for (int i = 0; i < NOTIFIER_SINKS_MAX; i++) {
        json_decref(file->sinks[i].labels);
        json_decref(file->sinks[i].to);
    }
    explicit_bzero(file, sizeof(*file));
}

void sink_add_secrets(const Sink *sink, SecretSet *set)
{
    char url[sizeof(sink->url)];
    size_t n = strlen(sink->url), n_own = strlen(alertmanager_path);
    if (sink->kind == SINK_ALERTMANAGER && n >= n_own)
        n -= n_own;
    (void)snprintf(url, sizeof(url), "%.*s", (int)n, sink->url);
    if (strcmp(url, pagerduty_url) != 0)
        secret_set_add_url(set, url);
    secret_set_add(set, sink->secret);
    if (sink->proxy[0])
        secret_set_add_url_user(set, sink->proxy);
    else
        proxy_add_secrets(set);
    explicit_bzero(url, sizeof(url));
}

/* Makes the path of a secret's file from its name: "%d/" stands for $CREDENTIALS_DIRECTORY, and a relative name is
 * relative to the folder of the alerts file. */
static bool find_secret(JsonReader *r, const char *key, const char *name, char *ret, size_t size)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY"), *slash = strrchr(r->source, '/');
    bool credential = strncmp(name, "%d/", 3) == 0;
    if (credential && !folder) {
        json_refuse(r, key, "%.60s: only a service has credentials; CREDENTIALS_DIRECTORY is unset",
                    name);
        return false;
    }
    int n = credential       ? snprintf(ret, size, "%s/%s", folder, name + 3)
            : name[0] == '/' ? snprintf(ret, size, "%s", name)
                             : snprintf(ret, size, "%.*s%s",
                                        slash ? (int)(slash - r->source) + 1 : 0, r->source, name);
    if ((size_t)n >= size)
        json_refuse(r, key, "\"%.60s...\" is too long", name);
    return (size_t)n < size;
}

static bool is_printable(const char *text)
{
    for (const char *p = text; *p; p++)
        if (*p < 0x21 || *p > 0x7e)
            return false;
    return true;
}

/* Reports whether a secret's file is private: a user who may read the file can page people, or send mail, in our
 * name. The older kinds of sinks accepted any file, so for those kinds the function only logs a warning. */
static bool is_private(JsonReader *r, const char *key, SinkKind kind, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0 || !(st.st_mode & S_IRWXO))
        return true; /* read_secret() reports a file that cannot be opened */
    if (kind < SINK_SLACK) {
        log_warning("%s: %s: everybody on this host may read %s (mode %04o); chmod o= it",
                    r->source, key, path, st.st_mode & 07777u);
        return true;
    }
    json_refuse(r, key, "everybody on this host may read %s (mode %04o); chmod o= it", path,
                st.st_mode & 07777u);
    return false;
}

/* Reads the first line of the file that the key names. */
static void read_secret(JsonReader *r, const char *key, JsonNeed need, SinkKind kind, char *ret,
                        size_t size)
{
    const char *name;
    char path[1024];
    Error err = ERROR_INIT;
    if (!json_get_string(r, key, need, &name) || !find_secret(r, key, name, path, sizeof(path)))
        return;
    if (!is_private(r, key, kind, path))
        return;
    if (settings_read_line(path, ret, size, &err) < 0)
        json_refuse(r, key, "%s", err.text);
    else if (!ret[0] || !is_printable(ret))
        json_refuse(r, key, "the first line of %s is not one printable word", path);
}

/* Whether url is printable and begins with the scheme and a host. */
static bool has_scheme(const char *url, const char *scheme)
{
    size_t n = strlen(scheme);
    return strncmp(url, scheme, n) == 0 && url[n] && url[n] != '/' && is_printable(url);
}

static void check_url(JsonReader *r, const char *key, const char *url)
{
    if (!has_scheme(url, "http://") && !has_scheme(url, "https://"))
        json_refuse(r, key, "%s does not begin with http:// or https:// and a host",
                    strcmp(key, "url_file") == 0 ? "its content" : url);
}

/* Reads the sink's address: from the key "url" or, if the address is a secret itself, from the file that "url_file"
 * names. */
static void read_url(JsonReader *r, Sink *sink)
{
    bool plain = json_get_text(r, "url", JSON_OPTIONAL, sink->url, sizeof(sink->url));
    if (plain) {
        check_url(r, "url", sink->url);
        return;
    }
    if (sink->kind == SINK_PAGERDUTY) {
        (void)snprintf(sink->url, sizeof(sink->url), "%s", pagerduty_url);
        return;
    }
    if (r->r < 0)
        return;
    read_secret(r, "url_file", JSON_OPTIONAL, sink->kind, sink->url, sizeof(sink->url));
    if (sink->url[0])
        check_url(r, "url_file", sink->url);
    else if (r->r == 0)
        json_refuse(r, "url", "missing; this sink needs url or url_file");
}

static void read_labels(JsonReader *r, Sink *sink)
{
    json_t *labels, *value;
    const char *name;
    if (!json_get_any(r, "labels", JSON_OPTIONAL, &labels))
        return;
    if (!json_is_object(labels) || json_object_size(labels) > SINK_LABELS_MAX) {
        json_refuse(r, "labels", "must be an object of at most %d texts", SINK_LABELS_MAX);
        return;
    }
    json_object_foreach (labels, name, value) {
        size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        if (!name[0] || name[n] || (name[0] >= '0' && name[0] <= '9'))
            json_refuse(r, "labels", "\"%.60s\" is not a label's name", name);
        if (!json_is_string(value) || json_string_length(value) > LABEL_TEXT_MAX)
            json_refuse(r, "labels", "%.60s: must be a text of at most %d bytes", name,
                        LABEL_TEXT_MAX);
        for (size_t i = 0; i < ELEMENTSOF(own_labels); i++)
            if (strcmp(name, own_labels[i]) == 0)
                json_refuse(r, "labels", "%s is set by the controller", name);
    }
    sink->labels = json_incref(labels);
}

static void read_severity(JsonReader *r, Severity otherwise, NotifierSink *ret)
{
    int least = (int)otherwise;
    (void)json_get_choice(r, "least", JSON_OPTIONAL, severity_names, ELEMENTSOF(severity_names),
                          &least);
    ret->least = (Severity)least;
}

static uint64_t read_seconds(JsonReader *r, const char *key, int64_t otherwise, int64_t most)
{
    int64_t seconds = otherwise;
    (void)json_get_int(r, key, JSON_OPTIONAL, 1, most,
                       &seconds); /* on an error the default stays */
    return (uint64_t)seconds * USEC_PER_SEC;
}

static void read_alertmanager(JsonReader *r, Sink *sink, NotifierSink *ret)
{
    bool watchdog = false;
    ret->repeat_usec = read_seconds(r, "repeat_sec", 60, 3600);
    (void)json_get_bool(r, "watchdog", JSON_OPTIONAL, &watchdog);
    ret->heartbeat_usec = watchdog ? ret->repeat_usec : 0;
    read_labels(r, sink);
    size_t n = strlen(sink->url);
    while (n > 0 && sink->url[n - 1] == '/')
        n--;
    if (n + sizeof(alertmanager_path) > sizeof(sink->url))
        json_refuse(r, "url", "is too long");
    else
        memcpy(sink->url + n, alertmanager_path, sizeof(alertmanager_path));
}

bool sink_address_is_valid(const char *text)
{
    const char *at = strchr(text, '@');
    if (!at || at == text || at - text > LOCAL_BYTES_MAX || strlen(text) > ADDRESS_BYTES_MAX)
        return false;
    for (const char *p = text; p < at; p++)
        if (*p < 0x21 || *p > 0x7e || strchr("<>()[],;:\\\"", *p))
            return false;
    size_t n = strspn(at + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-");
    return n > 0 && at[1 + n] == '\0' && at[1] != '.' && at[n] != '.';
}

static void read_address(JsonReader *r, const char *key, const json_t *value)
{
    const char *text = json_string_value(value);
    if (!text || !sink_address_is_valid(text))
        json_refuse(r, key, "\"%.80s\" is not an address as name@host, of ASCII only",
                    text ? text : "");
}

static void read_addresses(JsonReader *r, Sink *sink)
{
    json_t *from, *to;
    if (json_get_any(r, "from", JSON_REQUIRED, &from)) {
        read_address(r, "from", from);
        if (r->r == 0)
            (void)snprintf(sink->from, sizeof(sink->from), "%s", json_string_value(from));
    }
    if (!json_get_array(r, "to", JSON_REQUIRED, SINK_ADDRESSES_MAX, &to))
        return;
    if (json_array_size(to) == 0)
        json_refuse(r, "to", "is empty: nobody would get the mails");
    for (size_t i = 0; i < json_array_size(to); i++)
        read_address(r, "to", json_array_get(to, i));
    sink->to = json_incref(to);
}

static void read_email(JsonReader *r, Sink *sink)
{
    static const char *const names[] = {"required", "off"};
    int tls = 0;
    if (json_get_text(r, "url", JSON_REQUIRED, sink->url, sizeof(sink->url))) {
        if (!has_scheme(sink->url, "smtp://") && !has_scheme(sink->url, "smtps://"))
            json_refuse(r, "url", "%s does not begin with smtp:// or smtps:// and a host",
                        sink->url);
        else if (strchr(sink->url, '@'))
            json_refuse(r, "url", "has an @: name the user by user and password_file");
    }
    read_addresses(r, sink);
    (void)json_get_choice(r, "tls", JSON_OPTIONAL, names, ELEMENTSOF(names), &tls);
    sink->plain = tls == 1;
    if (sink->plain && strncmp(sink->url, "smtps:", 6) == 0)
        json_refuse(r, "tls", "off contradicts %s", sink->url);
    bool user = json_get_text(r, "user", JSON_OPTIONAL, sink->user, sizeof(sink->user));
    read_secret(r, "password_file", user ? JSON_REQUIRED : JSON_OPTIONAL, sink->kind, sink->secret,
                sizeof(sink->secret));
    if (sink->secret[0] && !user)
        json_refuse(r, "user", "missing; password_file needs it");
    if (sink->secret[0] && sink->plain)
        json_refuse(r, "tls",
                    "off: the password would be readable on the way; leave out user and "
                    "password_file, or tls");
}

static void read_sink(JsonReader *r, Sink *sink, NotifierSink *ret)
{
    int kind = 0;
    (void)json_get_text(r, "name", JSON_REQUIRED, ret->name, sizeof(ret->name));
    if (r->r == 0 && !name_is_valid(ret->name))
        json_refuse(r, "name", "\"%s\" is not a name of a-z, 0-9, '.' and '-'", ret->name);
    (void)json_get_choice(r, "kind", JSON_REQUIRED, kinds, ELEMENTSOF(kinds), &kind);
    sink->kind = (SinkKind)kind;
    if (r->r < 0)
        return;
    (void)json_get_text(r, "ca_file", JSON_OPTIONAL, sink->ca_file, sizeof(sink->ca_file));
    if (sink->kind != SINK_EMAIL) {
        read_url(r, sink);
        (void)json_get_text(r, "proxy", JSON_OPTIONAL, sink->proxy, sizeof(sink->proxy));
    }
    switch (sink->kind) {
    case SINK_PAGERDUTY:
        read_severity(r, SEVERITY_CRITICAL, ret);
        read_secret(r, "routing_key_file", JSON_REQUIRED, sink->kind, sink->secret,
                    sizeof(sink->secret));
        break;
    case SINK_ALERTMANAGER:
        read_severity(r, SEVERITY_WARNING, ret);
        read_secret(r, "token_file", JSON_OPTIONAL, sink->kind, sink->secret, sizeof(sink->secret));
        read_alertmanager(r, sink, ret);
        break;
    case SINK_WEBHOOK:
        read_severity(r, SEVERITY_WARNING, ret);
        read_secret(r, "token_file", JSON_OPTIONAL, sink->kind, sink->secret, sizeof(sink->secret));
        break;
    case SINK_SLACK:
        read_severity(r, SEVERITY_WARNING, ret);
        break;
    case SINK_EMAIL:
        read_severity(r, SEVERITY_WARNING, ret);
        read_email(r, sink);
        break;
    case SINK_HEARTBEAT:
        ret->heartbeat_only = true;
        ret->heartbeat_usec = read_seconds(r, "every_sec", 30, 86400);
        read_secret(r, "token_file", JSON_OPTIONAL, sink->kind, sink->secret, sizeof(sink->secret));
        break;
    }
}

static void read_sinks(JsonReader *r, AlertsFile *ret)
{
    NotifierConfig *c = &ret->notifier;
    json_t *sinks;
    if (!json_get_array(r, "sinks", JSON_REQUIRED, NOTIFIER_SINKS_MAX, &sinks))
        return;
    for (size_t i = 0; r->r == 0 && i < json_array_size(sinks); i++) {
        JsonReader s = json_get_element(r, "sinks", sinks, i);
        NotifierSink *sink = &c->sinks[c->n_sinks];
        read_sink(&s, &ret->sinks[c->n_sinks], sink);
        for (int k = 0; k < c->n_sinks; k++)
            if (s.r == 0 && strcmp(c->sinks[k].name, sink->name) == 0)
                json_refuse(&s, "name", "\"%s\" is there twice", sink->name);
        c->n_sinks++;
        (void)json_close(&s); /* json_close() has passed an error on to r */
    }
}

static int parse(const char *source, json_t *root, AlertsFile *ret, Error *err)
{
    memset(ret, 0, sizeof(*ret));
    ret->notifier = notifier_config_default;
    JsonReader r = json_open(source, root, JSON_KNOWN_KEYS, err);
    ret->notifier.timeout_usec = read_seconds(&r, "timeout_sec", 10, 120);
    ret->notifier.retry_max_usec = read_seconds(&r, "retry_max_sec", 300, 3600);
    ret->notifier.late_usec = read_seconds(&r, "late_sec", 3600, 86400 * 7);
    if (json_get_text(&r, "link", JSON_OPTIONAL, ret->link, sizeof(ret->link)))
        check_url(&r, "link", ret->link);
    if (json_get_text(&r, "runbook_url", JSON_OPTIONAL, ret->runbook_url, sizeof(ret->runbook_url)))
        check_url(&r, "runbook_url", ret->runbook_url);
    read_sinks(&r, ret);
    int result = json_close(&r);
    if (result < 0)
        alerts_file_clear(ret);
    return result;
}

int alerts_file_parse(const char *source, const char *text, size_t n_bytes, AlertsFile *ret,
                      Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    int r = json_parse(source, text, n_bytes, &root, err);
    return r < 0 ? r : parse(source, root, ret, err);
}

int alerts_file_read(const char *path, AlertsFile *ret, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    if (!path[0]) {
        memset(ret, 0, sizeof(*ret));
        ret->notifier = notifier_config_default;
        return 0;
    }
    int r = json_read_file(path, FILE_BYTES_MAX, &root, err);
    return r < 0 ? r : parse(path, root, ret, err);
}
