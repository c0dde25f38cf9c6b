/* SPDX-License-Identifier: Apache-2.0 */
/* owner.c - see owner.h. */
#include "protocol/owner.h"

#include "base/clock.h"
#include "base/json/json-build.h"
#include "base/json/json.h"

#include <string.h>
#include <time.h>

void owner_key_format(int64_t number, char key[OWNER_KEY_MAX])
{
    assert(number >= 1 && number <= OWNER_NUMBER_MAX);
    (void)snprintf(key, OWNER_KEY_MAX, OWNER_PREFIX "%d", (int)number);
}

int owner_key_parse(const char *key, int64_t *ret)
{
    const size_t n = strlen(OWNER_PREFIX);
    if (strncmp(key, OWNER_PREFIX, n) != 0 || key[n] < '1' || key[n] > '9' || strlen(key + n) > 6 ||
        strspn(key + n, "0123456789") != strlen(key + n))
        return -EINVAL;
    *ret = strtoll(key + n, NULL, 10);
    return 0;
}

/* Adds a text of terms, unless the object would become longer than other versions read. Terms are only for people. */
static int add_terms(json_t *root, const char *key, const char *terms, char **text)
{
    if (!*terms)
        return 0;
    json_object_set_new(root, key, json_string(terms));
    char *longer = json_dumps(root, JSON_INDENT(1));
    if (!longer)
        return -ENOMEM;
    if (strlen(longer) >= OWNER_OBJECT_MAX) {
        (void)json_object_del(root, key); /* cannot fail: the key was just set */
        free(longer);
        return 0;
    }
    free(*text);
    *text = longer;
    return 0;
}

int owner_format(const OwnerRecord *o, char **ret)
{
    JsonBuild b = json_build();
    json_add_int(&b, "v", OWNER_VERSION);
    json_add_text(&b, "submission", o->submission);
    json_add_text(&b, "claim", o->claim);
    json_add_bool(&b, "alone", o->alone);
    json_add_text(&b, "job", o->job);
    json_add_text(&b, "host", o->host);
    json_add_int(&b, "pid", o->pid);
    json_add_int(&b, "generation", o->generation);
    json_add(&b, "job_identity", json_hash(o->job_identity));
    json_add(&b, "dataset_digest", json_hash(o->dataset_digest));
    json_add_int(&b, "claimed_usec", (int64_t)o->claimed_usec);
    _cleanup_json_ json_t *root = json_build_end(&b);
    _cleanup_free_ char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (!text || add_terms(root, "job_terms", o->job_terms, &text) < 0 ||
        add_terms(root, "dataset_terms", o->dataset_terms, &text) < 0)
        return -ENOMEM;
    *ret = TAKE_PTR(text);
    return 0;
}

static void get_terms(JsonReader *r, const char *key, char ret[OWNER_TERMS_MAX])
{
    const char *text;
    if (json_get_string(r, key, JSON_OPTIONAL, &text) && strlen(text) < OWNER_TERMS_MAX)
        (void)snprintf(ret, OWNER_TERMS_MAX, "%s", text);
}

static void get_claim(JsonReader *r, OwnerRecord *o)
{
    const size_t n = sizeof(o->claim) - 1;
    if (json_get_text(r, "claim", JSON_REQUIRED, o->claim, sizeof(o->claim)) &&
        (strlen(o->claim) != n || strspn(o->claim, "0123456789abcdef") != n))
        json_refuse(r, "claim", "%s is not %zu hexadecimal digits", o->claim, n);
}

int owner_parse(const char *source, const char *text, size_t n_bytes, OwnerRecord *ret, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    OwnerRecord o = {0};
    int64_t version = 0;
    int r = json_parse(source, text, n_bytes, &root, err);
    if (r == 0) {
        JsonReader j = json_open(source, root, JSON_ANY_KEYS, err);
        (void)json_get_int(&j, "v", JSON_REQUIRED, 1, INT64_MAX,
                           &version); /* errors are kept in j */
        if (j.r == 0 && version > OWNER_VERSION)
            return error_set(err, -EPROTONOSUPPORT,
                             "%s: v: of version %lld, which a newer sdtrain wrote; this is "
                             "sdtrain " SDTRAIN_VERSION
                             ", which reads version %d: use the newer one",
                             source, (long long)version, OWNER_VERSION);
        (void)json_get_text(&j, "submission", JSON_REQUIRED, o.submission, sizeof(o.submission));
        get_claim(&j, &o);
        (void)json_get_bool(&j, "alone", JSON_REQUIRED, &o.alone);
        (void)json_get_text(&j, "job", JSON_REQUIRED, o.job, sizeof(o.job));
        (void)json_get_text(&j, "host", JSON_REQUIRED, o.host, sizeof(o.host));
        (void)json_get_int(&j, "pid", JSON_REQUIRED, 0, INT64_MAX, &o.pid);
        (void)json_get_int(&j, "generation", JSON_REQUIRED, 0, INT64_MAX, &o.generation);
        json_get_hash(&j, "job_identity", &o.job_identity);
        json_get_hash(&j, "dataset_digest", &o.dataset_digest);
        (void)json_get_int(&j, "claimed_usec", JSON_REQUIRED, 0, INT64_MAX, &o.claimed_usec);
        get_terms(&j, "job_terms", o.job_terms);
        get_terms(&j, "dataset_terms", o.dataset_terms);
        r = json_close(&j);
    }
    if (r == -EINVAL) { /* json.h returns -EINVAL for bad text */
        r = -EBADMSG;
        if (err)
            err->code = r;
    }
    if (r == 0)
        *ret = o;
    return r;
}

/* Copies a text from outside for a message, with '?' for control characters. */
static void quote(const char *text, char *ret, size_t size)
{
    size_t n = 0;
    for (; text[n] && n + 1 < size; n++)
        ret[n] = (unsigned char)text[n] < 0x20 || text[n] == 0x7f ? '?' : text[n];
    ret[n] = '\0';
}

void owner_describe(const OwnerRecord *o, char *ret, size_t size)
{
    char since[32] = "?", job[sizeof(o->job)], host[sizeof(o->host)], submission[9];
    time_t t = (time_t)(o->claimed_usec / (int64_t)USEC_PER_SEC);
    struct tm tm;
    /* This cannot fail: the buffer is large enough. */
    if (gmtime_r(&t, &tm))
        (void)strftime(since, sizeof(since), "%Y-%m-%d %H:%M:%S UTC", &tm);
    quote(o->job, job, sizeof(job));
    quote(o->host, host, sizeof(host));
    quote(o->submission, submission, sizeof(submission));
    if (o->alone)
        (void)snprintf(ret, size, "sdtrainer run of job %s (on %s, process %lld, since %s)", job,
                       host, (long long)o->pid, since);
    else
        (void)snprintf(ret, size,
                       "job %s of submission %s (on %s, process %lld, generation %lld, since %s)",
                       job, submission, host, (long long)o->pid, (long long)o->generation, since);
}
