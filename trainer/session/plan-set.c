/* SPDX-License-Identifier: Apache-2.0 */
/* plan-set.c - see plan-set.h. */
#include "trainer/session/plan-set.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/number/hash.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/session/device-exit.h"

#include <string.h>
#include <unistd.h>

enum {
    KEY_MAX = 256,
    /* limit of a listing of a submission's sets; there are few, one for each kind of machine */
    LISTED_MAX = 1024,
    /* pause before a set is read back, if two puts of one key may both succeed */
    READ_BACK_SEC = 2,
    PAUSE_MIN_MSEC = 100,
    PAUSE_MAX_MSEC = 2000,
};

#define PLAIN_SET "{\"plain\":true,\"version\":1}"

/* ---- the key ---- */

/* Writes the prefix of the keys of all sets of the submission. */
static void format_prefix(const PlanSetNeeds *n, char ret[KEY_MAX])
{
    (void)snprintf(ret, KEY_MAX, CHECKPOINT_PLAN_SETS "%s-", n->submission);
}

/* set: the plans of this machine; NULL: a machine without libraries, which has the plain set. */
static int format_key(const PlanSetNeeds *n, const char *set, char ret[KEY_MAX], Error *err)
{
    const char *device = NULL;
    int64_t sms = 0, cudnn = 0, cublaslt = 0;
    format_prefix(n, ret);
    const size_t at = strlen(ret);
    if (!set) {
        (void)snprintf(ret + at, KEY_MAX - at, "plain.json");
        return 0;
    }
    _cleanup_json_ json_t *json = NULL;
    int r = json_parse("the device's plans", set, strlen(set), &json, err);
    if (r < 0)
        return r;
    JsonReader j = json_open("the device's plans", json, JSON_ANY_KEYS, err);
    json_get_string(&j, "device", JSON_REQUIRED, &device);
    json_get_int(&j, "sms", JSON_REQUIRED, 1, INT32_MAX, &sms);
    json_get_int(&j, "cudnn", JSON_REQUIRED, 0, INT32_MAX, &cudnn);
    json_get_int(&j, "cublaslt", JSON_REQUIRED, 0, INT32_MAX, &cublaslt);
    if ((r = json_close(&j)) < 0)
        return r;
    int length = snprintf(ret + at, KEY_MAX - at, "%.100s-%lld-%lld-%lld.json", device,
                          (long long)sms, (long long)cudnn, (long long)cublaslt);
    assert(length > 0 && at + (size_t)length < KEY_MAX);
    for (char *c = ret + at; *c; c++)
        if (!strchr("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-", *c))
            *c = '-';
    return 0;
}

/* ---- the store ---- */

/* If the folder refuses all writes, the job is not retried: it would time algorithms again and again. */
static ExitCode exit_code_of_folder(int r)
{
    return exit_is_refusal(r) ? EXIT_NEVER_RETRY : exit_code_of_store(r);
}

static int get(const PlanSetNeeds *n, const char *key, char **ret, Error *err)
{
    int r = store_get(n->store, key, DEVICE_PLANS_MAX, ret, NULL, err);
    return error_set_exit(err, r, exit_code_of_folder(r));
}

/* Returns -EEXIST if the key already has a set. */
static int put(const PlanSetNeeds *n, const char *key, const char *set, bool *ret_atomic,
               Error *err)
{
    const struct iovec part = {.iov_base = (char *)set, .iov_len = strlen(set)};
    int r = store_puts_if_absent(n->store, ret_atomic, err);
    if (r == 0)
        r = store_put(n->store, key, &part, 1, STORE_IF_ABSENT, err);
    return error_set_exit(err, r, exit_code_of_folder(r));
}

/* ---- rank 0 ---- */

int plan_set_make(Device *maker, const UnetConfig *config, const NetworkShape *shape, char **ret,
                  Error *err)
{
    _cleanup_(network_freep) Network *network = NULL;
    int r = network_plan(maker, config, shape, &network, err);
    /* -ENOMEM: other processes may use the device's memory for the moment, so a later start may succeed */
    if (r < 0)
        return error_set_exit(err, r, r == -ENOMEM ? EXIT_RETRY : device_exit_code(r));
    r = device_plans(maker, ret);
    return r < 0 ? error_errno(err, r, "cannot tell the device's plans") : 0;
}

static int fail_at(const char *point, const PlanSetNeeds *n, const char *key, Error *err)
{
    int r = fault(point);
    if (r < 0)
        (void)error_errno(err, r, "%s/%s", store_uri(n->store), key); /* r is returned below */
    return error_set_exit(err, r, exit_code_of_folder(r));
}

/* Makes a set and puts it. *ret is the set under the key, which is another process's set if that set was put first. */
static int make_and_put(const PlanSetNeeds *n, Device *maker, const char *key, char **ret,
                        Error *err)
{
    _cleanup_free_ char *made = maker ? NULL : strdup(PLAIN_SET);
    bool atomic = true;
    if (maker)
        log_info("makes the plan set of this submission: algorithms are timed for %d s at most",
                 n->tune_sec);
    int r = maker ? plan_set_make(maker, n->config, n->shape, &made, err) : 0;
    if (r < 0)
        return r;
    if (!made)
        return error_set(err, -ENOMEM, "out of memory for a plan set");
    r = fail_at("plans.made", n, key, err);
    if (r == 0)
        r = put(n, key, made, &atomic, err);
    if (r == 0)
        r = fail_at("plans.put", n, key, err);
    if (r < 0 && r != -EEXIST)
        return r;
    if (r == 0 && atomic) {
        *ret = TAKE_PTR(made);
        return 0;
    }
    if (!atomic)
        (void)sleep(READ_BACK_SEC); /* a signal may shorten the pause */
    return get(n, key, ret, err);
}

static int lead(const PlanSetNeeds *n, Device *maker, const char *key, char **ret, Error *err)
{
    int r = get(n, key, ret, err);
    return r == -ENOENT ? make_and_put(n, maker, key, ret, err) : r;
}

/* ---- the other ranks ---- */

/* Returns 1 if the set exists, otherwise 0. ret_other: the submission's newest set for another kind of machine. */
static int look(const PlanSetNeeds *n, const char *key, size_t *ret_others, char ret_other[KEY_MAX],
                Error *err)
{
    char prefix[KEY_MAX];
    StoreList list = {0};
    bool is_there = false;
    uint64_t newest_usec = 0;
    format_prefix(n, prefix);
    int r = store_list(n->store, prefix, LISTED_MAX, &list, err);
    if (r < 0)
        return r;
    *ret_others = 0;
    for (size_t i = 0; i < list.n_objects; i++) {
        const StoreObject *o = &list.objects[i];
        const bool mine = strcmp(o->key, key) == 0;
        is_there |= mine;
        *ret_others += !mine;
        if (!mine && o->modified_usec >= newest_usec) {
            newest_usec = o->modified_usec;
            (void)snprintf(ret_other, KEY_MAX, "%s", o->key);
        }
    }
    store_list_clear(&list);
    return is_there;
}

static int late(const PlanSetNeeds *n, const char *key, const char *other, Error *err)
{
    return error_set(err, -ETIMEDOUT, "rank 0 has put no plan set %s for this GPU within %d s%s%s",
                     key, n->wait_sec, *other ? "; the submission has " : "", other);
}

static int follow(const PlanSetNeeds *n, const char *key, char **ret, Error *err)
{
    const uint64_t end_usec = clock_boottime_usec() + (uint64_t)n->wait_sec * USEC_PER_SEC;
    char other[KEY_MAX] = "";
    size_t n_others = 0, n_before = SIZE_MAX;
    for (uint64_t pause_msec = PAUSE_MIN_MSEC;;
         pause_msec = MIN(2 * pause_msec, (uint64_t)PAUSE_MAX_MSEC)) {
        const bool is_late = clock_boottime_usec() >= end_usec;
        int r = look(n, key, &n_others, other, err);
        if (r != 0)
            return r < 0 ? error_set_exit(err, r, exit_code_of_store(r)) : get(n, key, ret, err);
        if (n_before == SIZE_MAX)
            log_info("waits for the plan set that rank 0 makes, as %s", key);
        else if (n_others > n_before) {
            r = error_set(err, -EXDEV, "rank 0 computes by the plans %s, this rank needs %s", other,
                          key);
            return error_set_exit(err, r, EXIT_NUMERICS);
        }
        n_before = MIN(n_before, n_others);
        if (is_late)
            return late(n, key, other, err);
        r = fault("plans.wait") < 0 ? error_set(err, -EIO, "%s: nobody waits", key)
                                    : daemon_link_check(n->link, err);
        if (r < 0)
            return r;
        (void)usleep((useconds_t)(pause_msec * 1000)); /* a signal may shorten the pause */
    }
}

/* ---- all ranks ---- */

/* Opens the device that makes plans. The device shows the kind of machine, which is part of `key`. *ret stays NULL if
 * the machine has no libraries. */
static int open_maker(const PlanSetNeeds *n, Device **ret, char key[KEY_MAX], Error *err)
{
    DeviceOptions options = *n->device;
    Error why = ERROR_INIT;
    _cleanup_(device_freep) Device *maker = NULL;
    _cleanup_free_ char *set = NULL;
    options.tune = options.keep_installed = true;
    options.tune_sec = n->tune_sec;
    int r = device_open(&options, &maker, &why);
    if (r == -ENODEV) { /* libraries are missing: the rank has opened the GPU before */
        log_warning("our own kernels compute all, which is slow: %s", why.text);
        return format_key(n, NULL, key, err);
    }
    if (r < 0)
        return error_set_exit(err, error_set(err, r, "%s", why.text), device_exit_code(r));
    r = device_plans(maker, &set);
    if (r < 0)
        return error_errno(err, r, "cannot tell the device's plans");
    r = format_key(n, set, key, err);
    *ret = TAKE_PTR(maker);
    return r;
}

int plan_set_take(const PlanSetNeeds *n, char **ret, Error *err)
{
    _cleanup_(device_freep) Device *maker = NULL;
    _cleanup_free_ char *set = NULL;
    char key[KEY_MAX], hash[HASH_TEXT_BYTES];
    int r = open_maker(n, &maker, key, err);
    if (r == 0)
        r = n->rank == 0 ? lead(n, maker, key, &set, err) : follow(n, key, &set, err);
    if (r < 0)
        return error_prefix(err, r, "train.plans \"auto\"");
    log_info("computes by the plan set %s, %s", hash_format(hash_bytes(set, strlen(set)), hash),
             key);
    *ret = TAKE_PTR(set);
    return 0;
}
