/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - see options.h. */
#include "store/s3/settings/options.h"

#include "base/memory.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { TEXT_MAX = 512, REGION_MAX = 63 };

static const struct {
    const char *name;
    uint64_t factor;
} units[] = {{"", 1},
             {"K", UINT64_C(1) << 10},
             {"M", UINT64_C(1) << 20},
             {"G", UINT64_C(1) << 30},
             {"T", UINT64_C(1) << 40}};

static const char *const switches[] = {"auto", "on", "off"}; /* in the order of S3Switch */
static const char *const addressings[] = {"auto", "path", "virtual"};

typedef struct Load {
    SharedFile *files[2]; /* config, credentials: the first file with a key counts */
    const char *profile;
    Error *err;
} Load;

/* A value and the place where it was found, for messages. */
typedef struct Found {
    const char *value;
    char where[256];
} Found;

const char *s3_variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static Found find_variable(const char *name)
{
    Found found = {.value = s3_variable(name)};
    snprintf(found.where, sizeof(found.where), "%s", name);
    return found;
}

static Found find_key(const Load *load, const char *key)
{
    for (size_t i = 0; i < ELEMENTSOF(load->files); i++) {
        Found found = {.value = shared_file_get(load->files[i], load->profile, key)};
        if (!found.value || !*found.value)
            continue;
        snprintf(found.where, sizeof(found.where), "%s:%d: %s", shared_file_name(load->files[i]),
                 shared_file_line(load->files[i], load->profile, key), key);
        return found;
    }
    return (Found){NULL};
}

/* Finds the value of the first variable that is set, or else of the key. */
static Found find(const Load *load, const char *first, const char *second, const char *key)
{
    Found found = find_variable(first);
    if (!found.value && second)
        found = find_variable(second);
    return found.value ? found : find_key(load, key);
}

static int refuse(const Load *load, const Found *found, const char *what)
{
    return error_set(load->err, -EINVAL, "%s: \"%.128s\" is not %s", found->where, found->value,
                     what);
}

/* ---- texts ---- */

static int load_region(const Load *load, S3Options *o)
{
    Found found = find(load, "AWS_REGION", "AWS_DEFAULT_REGION", "region");
    const char *region = found.value ?: "us-east-1";
    if (strlen(region) > REGION_MAX ||
        region[strspn(region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789-_.")])
        return refuse(load, &found, "the name of a region");
    o->region = memory_text(region);
    return 0;
}

/* Returns whether the n bytes are "host[:port]" or "[v6][:port]". */
static bool is_host(const char *host, size_t n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t end = strspn(host, letters);
    while (end > 0 && end < n && strchr("-._", host[end]))
        end += 1 + strspn(host + end + 1, letters);
    if (host[0] == '[') {
        end = 1 + strspn(host + 1, "0123456789abcdefABCDEF:.");
        if (end == 1 || host[end++] != ']')
            return false;
    }
    if (end == n)
        return n > 0;
    if (end == 0 || host[end] != ':')
        return false;
    char *rest;
    unsigned long port = strtoul(host + end + 1, &rest, 10);
    return host[end + 1] >= '0' && host[end + 1] <= '9' && rest == host + n && port > 0 &&
           port <= UINT16_MAX;
}

static int load_endpoint(const Load *load, S3Options *o)
{
    const char *ignore = s3_variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    Found found = {NULL};
    if (!ignore || strcasecmp(ignore, "true") != 0)
        found = find(load, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "endpoint_url");
    if (!found.value) {
        o->endpoint = memory_format("https://s3.%s.amazonaws.com%s", o->region,
                                    strncmp(o->region, "cn-", 3) == 0 ? ".cn" : "");
        return 0;
    }
    bool tls = strncasecmp(found.value, "https://", 8) == 0;
    if (!tls && strncasecmp(found.value, "http://", 7) != 0)
        return refuse(load, &found, "http://host[:port] or https://host[:port]");
    const char *host = found.value + (tls ? 8 : 7), *own_port = tls ? ":443" : ":80";
    size_t n = strcspn(host, "/");
    if (n > 255 || !is_host(host, n) || host[n + strspn(host + n, "/")])
        return refuse(load, &found, "http://host[:port] or https://host[:port]");
    size_t n_port = strlen(own_port);
    if (n > n_port && strncmp(host + n - n_port, own_port, n_port) == 0)
        n -= n_port;
    o->endpoint = memory_format("%s://%.*s", tls ? "https" : "http", (int)n, host);
    return 0;
}

static int load_ca_bundle(const Load *load, S3Options *o)
{
    Found found = find(load, "AWS_CA_BUNDLE", NULL, "ca_bundle");
    if (!found.value)
        return 0;
    if (access(found.value, R_OK) < 0)
        return error_errno(load->err, -EINVAL, "%s: cannot read %.256s", found.where, found.value);
    o->ca_bundle = memory_text(found.value);
    return 0;
}

/* ---- words and numbers ---- */

/* Sets *ret to the index of the word; keeps *ret if no value was found. */
static int load_word(const Load *load, const Found *found, const char *const words[3], int *ret)
{
    if (!found->value)
        return 0;
    for (int i = 0; i < 3; i++)
        if (strcmp(found->value, words[i]) == 0) {
            *ret = i;
            return 0;
        }
    char what[TEXT_MAX];
    snprintf(what, sizeof(what), "%s, %s or %s", words[0], words[1], words[2]);
    return refuse(load, found, what);
}

static int load_switch(const Load *load, const char *name, S3Switch *ret)
{
    Found found = find_variable(name);
    int word = (int)*ret, r = load_word(load, &found, switches, &word);
    *ret = (S3Switch)word;
    return r;
}

static int load_addressing(const Load *load, S3Addressing *ret)
{
    Found found = find(load, "SDTRAIN_S3_ADDRESSING", NULL, "s3.addressing_style");
    int word = (int)*ret, r = load_word(load, &found, addressings, &word);
    *ret = (S3Addressing)word;
    return r;
}

/* Parses digits, followed by one letter of `units` if n_units is more than one. */
static bool parse_number(const char *text, size_t n_units, uint64_t *ret)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 18)
        return false;
    uint64_t value = strtoull(text, NULL, 10);
    for (size_t i = 0; i < n_units; i++)
        if (strcmp(text + n, units[i].name) == 0)
            return !__builtin_mul_overflow(value, units[i].factor, ret);
    return false;
}

static const char *format_bytes(uint64_t value, char ret[static 32])
{
    size_t unit = 0;
    while (unit + 1 < ELEMENTSOF(units) && value > 0 && value % 1024 == 0) {
        value /= 1024;
        unit++;
    }
    snprintf(ret, 32, "%llu%s", (unsigned long long)value, units[unit].name);
    return ret;
}

static int load_number(const Load *load, const char *name, bool bytes, uint64_t least,
                       uint64_t most, uint64_t *ret)
{
    Found found = find_variable(name);
    uint64_t value;
    if (!found.value)
        return 0;
    if (parse_number(found.value, bytes ? ELEMENTSOF(units) : 1, &value) && value >= least &&
        value <= most) {
        *ret = value;
        return 0;
    }
    char what[TEXT_MAX], low[32], high[32];
    if (bytes)
        snprintf(what, sizeof(what), "a number of bytes from %s to %s, such as 8M",
                 format_bytes(least, low), format_bytes(most, high));
    else
        snprintf(what, sizeof(what), "a whole number from %llu to %llu", (unsigned long long)least,
                 (unsigned long long)most);
    return refuse(load, &found, what);
}

static int load_numbers(const Load *load, S3Options *o)
{
    const uint64_t mib = 1 << 20;
    uint64_t connections = 32, deadline_sec = 300, stall_sec = 20;
    o->part_bytes = 8 * mib;
    o->memory_bytes = 256 * mib;
    int r = load_number(load, "SDTRAIN_S3_PART_BYTES", true, 5 * mib, 5120 * mib, &o->part_bytes);
    if (r == 0)
        r = load_number(load, "SDTRAIN_S3_MEMORY_BYTES", true, o->part_bytes, mib << 20,
                        &o->memory_bytes);
    if (r == 0)
        r = load_number(load, "SDTRAIN_S3_CONNECTIONS", false, 1, 1024, &connections);
    if (r == 0)
        r = load_number(load, "SDTRAIN_S3_DEADLINE_SEC", false, 1, 86400, &deadline_sec);
    if (r == 0)
        r = load_number(load, "SDTRAIN_S3_STALL_SEC", false, 1, 3600, &stall_sec);
    o->connections = (int64_t)connections;
    o->deadline_usec = deadline_sec * USEC_PER_SEC;
    o->stall_usec = stall_sec * USEC_PER_SEC;
    /* the default may be smaller than one part */
    o->memory_bytes = MAX(o->memory_bytes, o->part_bytes);
    return r;
}

/* Refuses unknown SDTRAIN_S3_ variables: otherwise a misspelled one would be ignored. */
static int check_names(const Load *load)
{
    static const char prefix[] = "SDTRAIN_S3_";
    static const char *const known[] = {"ADDRESSING",   "PART_BYTES",   "CONNECTIONS",
                                        "MEMORY_BYTES", "DEADLINE_SEC", "STALL_SEC",
                                        "SIGN_PAYLOAD", "CHECKSUM"};
    for (char **entry = environ; *entry; entry++) {
        if (strncmp(*entry, prefix, sizeof(prefix) - 1) != 0)
            continue;
        const char *name = *entry + sizeof(prefix) - 1;
        size_t n = strcspn(name, "="), i = 0;
        while (i < ELEMENTSOF(known) && (strlen(known[i]) != n || strncmp(known[i], name, n) != 0))
            i++;
        if (i == ELEMENTSOF(known))
            return error_set(load->err, -EINVAL, "%s%.*s: no such setting", prefix,
                             (int)MIN(n, (size_t)64), name);
    }
    return 0;
}

/* ---- all settings ---- */

static int load_profile(Load *load, S3Options *o)
{
    const char *named = s3_variable("AWS_PROFILE");
    load->profile = named ? named : "default";
    if (named && !shared_file_has(load->files[0], named) && !shared_file_has(load->files[1], named))
        return error_set(load->err, -EINVAL,
                         "AWS_PROFILE: there is no profile \"%.64s\" in %.128s or %.128s", named,
                         shared_file_name(load->files[0]), shared_file_name(load->files[1]));
    o->profile = memory_text(load->profile);
    return 0;
}

static int load_all(Load *load, S3Options *o)
{
    int r = check_names(load);
    if (r == 0)
        r = load_profile(load, o);
    if (r == 0)
        r = load_region(load, o);
    if (r == 0)
        r = load_endpoint(load, o);
    if (r == 0)
        r = load_ca_bundle(load, o);
    if (r == 0)
        r = load_addressing(load, &o->addressing);
    if (r == 0)
        r = load_numbers(load, o);
    if (r == 0)
        r = load_switch(load, "SDTRAIN_S3_SIGN_PAYLOAD", &o->sign_payload);
    if (r == 0)
        r = load_switch(load, "SDTRAIN_S3_CHECKSUM", &o->checksum);
    return r;
}

int s3_options_load(S3Options *ret, Error *err)
{
    _cleanup_(shared_file_freep) SharedFile *config = NULL, *credentials = NULL;
    int r = shared_file_load(SHARED_CONFIG, &config, err);
    if (r == 0)
        r = shared_file_load(SHARED_CREDENTIALS, &credentials, err);
    if (r < 0)
        return r;

    Load load = {.files = {config, credentials}, .err = err};
    S3Options o = {.endpoint = NULL};
    r = load_all(&load, &o);
    if (r < 0) {
        s3_options_clear(&o);
        return r;
    }
    *ret = o;
    return 0;
}

void s3_options_clear(S3Options *options)
{
    free(options->endpoint);
    free(options->region);
    free(options->profile);
    free(options->ca_bundle);
    *options = (S3Options){.endpoint = NULL};
}
