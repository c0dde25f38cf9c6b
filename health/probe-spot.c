/* SPDX-License-Identifier: Apache-2.0 */
/* probe-spot.c - checks whether the cloud is about to take this instance: AWS's notices in the instance's metadata
 * (IMDSv2).
 *
 * A notice comes two minutes before the instance is taken. It drains the node, so that its job saves and continues
 * elsewhere. Soon afterwards the endpoint may report no notice, or may not answer any more, while the instance is
 * still taken. So a notice counts until a reboot, or until the endpoint has reported no notice for so long that this
 * instance was spared, or has been woken from hibernation.
 *
 * A recommendation to rebalance says that a notice is likelier than usual. Instances may run on for days after a
 * recommendation, so the node is only suspect.
 *
 * An endpoint that does not answer is a finding after SILENCES_MAX runs, since a single answer may be lost.
 *
 * State: {"boot_id", "noticed_usec": boottime of the last run that saw the notice or got no answer, "notice": the text
 *        of the notice, "silences": number of runs in a row without an answer}.
 *
 * Source: Amazon EC2 User Guide, "Spot Instance interruption notices", "EC2 instance rebalance recommendations",
 *         "Use the Instance Metadata Service".
 */
#include "health/probe.h"

#include "base/clock.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "base/text/printable.h"
#include "base/text/secret.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>

enum {
    WHOLE_MSEC = 3000, /* limit for all requests together; the service answers in milliseconds */
    REPLY_MAX = 4096,
    TOKEN_SEC = 60,
    SILENCES_MAX = 12, /* runs in a row without an answer, in one minute */
    DENIED_SEC = 900,
};

#define NO_NOTICE "no notice"

typedef struct Reply {
    long status;
    size_t n;
    char body[REPLY_MAX + 1];
} Reply;

typedef struct Spot {
    CURL *easy;
    const char *endpoint;
    uint64_t deadline_usec;
    char *token; /* header of each request: "X-aws-ec2-metadata-token: ..." */
    char failure[CURL_ERROR_SIZE];
} Spot;

static void spot_clear(Spot *spot)
{
    curl_easy_cleanup(spot->easy);
    secret_free(spot->token);
}

static void list_free(struct curl_slist **list) { curl_slist_free_all(*list); }

static size_t on_body(char *data, _unused_ size_t one, size_t n, void *userdata)
{
    Reply *reply = userdata;
    if (n > REPLY_MAX - reply->n)
        return 0; /* makes the transfer fail */
    memcpy(reply->body + reply->n, data, n);
    reply->n += n;
    reply->body[reply->n] = '\0';
    return n;
}

/* Sends a request, not through any proxy, and follows no redirect. */
static int http_request(Spot *spot, const char *method, const char *path, const char *header,
                        Reply *ret, Error *err)
{
    uint64_t now = clock_boottime_usec();
    _cleanup_free_ char *url = memory_format("%s%s", spot->endpoint, path);
    _cleanup_(list_free) struct curl_slist *headers = memory_given(curl_slist_append(NULL, header));
    if (now >= spot->deadline_usec)
        return error_set(err, -ETIMEDOUT, "%s: no time was left to ask", url);
    *ret = (Reply){0};

    bool good = true;
    curl_easy_reset(spot->easy);
#define SET(option, value) good = good && curl_easy_setopt(spot->easy, option, value) == CURLE_OK
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PROTOCOLS_STR, "http");
    SET(CURLOPT_CUSTOMREQUEST, method);
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_TIMEOUT_MS, (long)MAX((spot->deadline_usec - now) / 1000, UINT64_C(1)));
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_ERRORBUFFER, spot->failure);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, ret);
#undef SET
    if (!good)
        return error_set(err, -ENOMEM, "%s: libcurl cannot prepare the request", url);
    CURLcode code = curl_easy_perform(spot->easy);
    if (code == CURLE_OK)
        code = curl_easy_getinfo(spot->easy, CURLINFO_RESPONSE_CODE, &ret->status);
    if (code != CURLE_OK)
        return error_set(err, -EHOSTUNREACH, "%s: %s", url,
                         *spot->failure ? spot->failure : curl_easy_strerror(code));
    return 0;
}

static int get_token(Spot *spot, Error *err)
{
    char header[64];
    Reply reply;
    (void)snprintf(header, sizeof(header), "X-aws-ec2-metadata-token-ttl-seconds: %d", TOKEN_SEC);
    int r = http_request(spot, "PUT", "/latest/api/token", header, &reply, err);
    if (r < 0)
        return r;
    if (reply.status != 200)
        return error_set(err, -EACCES, "%s: asked for a token, it answers status %ld",
                         spot->endpoint, reply.status);
    size_t n = strcspn(reply.body, "\r\n");
    if (n == 0 || n > 1024 ||
        n != strspn(reply.body, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "abcdefghijklmnopqrstuvwxyz0123456789+/=-_."))
        return error_set(err, -EBADMSG, "%s: what it gives is not a token", spot->endpoint);
    spot->token = memory_format("X-aws-ec2-metadata-token: %.*s", (int)n, reply.body);
    return 0;
}

/* Reads a document. Returns 1 with the texts of two keys (the second may be absent), or 0 if there is no such
 * document. */
static int get_document(Spot *spot, const char *path, const char *first, char ret_first[64],
                        const char *second, char ret_second[64], Error *err)
{
    Reply reply;
    _cleanup_json_ json_t *root = NULL;
    int r = http_request(spot, "GET", path, spot->token, &reply, err);
    if (r < 0 || reply.status == 404)
        return r;
    if (reply.status != 200)
        return error_set(err, -EACCES, "%s%s: it answers status %ld", spot->endpoint, path,
                         reply.status);
    if (json_parse(path, reply.body, reply.n, &root, err) < 0)
        return -EBADMSG;
    JsonReader reader = json_open(path, root, JSON_ANY_KEYS, err);
    (void)json_get_text(&reader, first, JSON_REQUIRED, ret_first, 64);
    if (second)
        (void)json_get_text(&reader, second, JSON_OPTIONAL, ret_second, 64);
    if (json_close(&reader) < 0)
        return -EBADMSG;
    printable_make(ret_first);
    if (second)
        printable_make(ret_second);
    return 1;
}

/* ---- the result ---- */

typedef struct Memory {
    double noticed_usec, silences;
    char notice[PROBE_TEXT_MAX]; /* "": no notice */
} Memory;

static void recall(const ProbeContext *context, Memory *ret)
{
    *ret = (Memory){0};
    const json_t *state = context->state;
    const char *boot_id = json_string_value(json_object_get(state, "boot_id"));
    const char *notice = json_string_value(json_object_get(state, "notice"));
    if (!boot_id || strcmp(boot_id, context->boot_id) != 0)
        return;
    (void)probe_recall(state, "silences", &ret->silences); /* stays 0 if absent */
    if (notice && probe_recall(state, "noticed_usec", &ret->noticed_usec))
        (void)snprintf(ret->notice, sizeof(ret->notice), "%s", notice);
}

/* Requests the notice and the recommendation; each is "" if there is none. */
static int look(const ProbeContext *context, char notice[PROBE_TEXT_MAX],
                char advice[PROBE_TEXT_MAX], Error *err)
{
    char action[64], time[64] = "";
    uint64_t msec = MIN((uint64_t)WHOLE_MSEC, (uint64_t)context->probe_sec * 1000 / 2);
    _cleanup_(spot_clear)
        Spot spot = {.easy = memory_given(curl_easy_init()),
                     .endpoint = context->spot_endpoint,
                     .deadline_usec = clock_boottime_usec() + msec * USEC_PER_MSEC};
    int r = get_token(&spot, err);
    if (r >= 0)
        r = get_document(&spot, "/latest/meta-data/spot/instance-action", "action", action, "time",
                         time, err);
    if (r > 0)
        (void)snprintf(notice, PROBE_TEXT_MAX, "the cloud takes this instance%s%s (%s)",
                       *time ? " at " : "", time, action);
    if (r == 0)
        r = get_document(&spot, "/latest/meta-data/events/recommendations/rebalance", "noticeTime",
                         time, NULL, NULL, err);
    if (r > 0 && !*notice)
        (void)snprintf(advice, PROBE_TEXT_MAX,
                       "the cloud may take this instance sooner than others, it says since %s",
                       time);
    return r;
}

static void judge(const ProbeContext *context, const Memory *memory, const char *advice,
                  const char *why, ProbeResult *ret)
{
    if (*memory->notice)
        probe_find_fault(ret, FAULT_SPOT_NOTICE, -1, "%s", memory->notice);
    if (*advice)
        probe_find_fault(ret, FAULT_SPOT_REBALANCE, -1, "%s", advice);
    if (memory->silences >= SILENCES_MAX)
        probe_find_fault(ret, FAULT_SPOT_SILENT, -1, "nobody knows of notices: %s", why);
    (void)snprintf(ret->note, sizeof(ret->note), "%s", memory->silences > 0 ? why : NO_NOTICE);
    ret->state =
        json_pack("{ss,sf,ss,sf}", "boot_id", context->boot_id, "noticed_usec",
                  memory->noticed_usec, "notice", memory->notice, "silences", memory->silences);
}

static int run_spot_probe(const ProbeContext *context, ProbeResult *ret, _unused_ Error *err)
{
    char notice[PROBE_TEXT_MAX] = "", advice[PROBE_TEXT_MAX] = "";
    double now = (double)clock_boottime_usec();
    Error why = ERROR_INIT;
    Memory memory;
    if (!*context->spot_endpoint) {
        (void)snprintf(ret->note, sizeof(ret->note), "nobody is asked: no spot_endpoint");
        return 0;
    }
    recall(context, &memory);
    int r = look(context, notice, advice, &why);
    memory.silences = r < 0 ? memory.silences + 1 : 0;
    if (*notice) {
        memory.noticed_usec = now;
        memcpy(memory.notice, notice, sizeof(memory.notice));
    } else if (r < 0) {
        memory.noticed_usec = now; /* silence does not withdraw an earlier notice */
    } else if (now >= memory.noticed_usec + DENIED_SEC * 1e6) {
        memory.notice[0] = '\0';
    }
    judge(context, &memory, advice, why.text, ret);
    return 0;
}

const Probe probe_spot = {.name = "spot", .timeout_usec = 10 * USEC_PER_SEC, .run = run_spot_probe};
