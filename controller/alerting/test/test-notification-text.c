/* SPDX-License-Identifier: Apache-2.0 */
/* test-notification-text.c - the alerts file, the messages to sinks and the replies of sinks, as bytes.
 * tests/system/test-notifications.py tests notifications from end to end, with real controllers. */
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "controller/alerting/answer.h"
#include "controller/alerting/payload.h"

#include <string.h>
#include <sys/stat.h>

/* ---- the alerts file ---- */

static char folder[] = "/tmp/sdtrain-pages-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    char path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/key", folder);
    assert_int_equal(file_write(path, "k3y\nmore\n", 9, 0, &err), 0);
    (void)snprintf(path, sizeof(path), "%s/spaces", folder);
    assert_int_equal(file_write(path, "two words\n", 10, 0, &err), 0);
    (void)snprintf(path, sizeof(path), "%s/address", folder);
    assert_int_equal(file_write(path, "https://hook/secret\n", 20, 0, &err), 0);
    assert_int_equal(unsetenv("CREDENTIALS_DIRECTORY"), 0);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    return folder_remove(folder, &err);
}

static int parse(const char *text, AlertsFile *ret, Error *err)
{
    char source[64];
    (void)snprintf(source, sizeof(source), "%s/alerts.json", folder);
    return alerts_file_parse(source, text, strlen(text), ret, err);
}

static void a_file_says_who_hears_of_what(void **state)
{
    (void)state;
    AlertsFile file;
    Error err = ERROR_INIT;
    static const char text[] =
        "{\"timeout_sec\": 5, \"late_sec\": 60, \"retry_max_sec\": 7, \"link\": \"https://wiki\","
        " \"sinks\": ["
        "{\"name\": \"pager\", \"kind\": \"pagerduty\", \"routing_key_file\": \"key\"},"
        "{\"name\": \"am\", \"kind\": \"alertmanager\", \"url\": \"http://am:9093/x/\","
        " \"watchdog\": true, \"least\": \"info\", \"labels\": {\"team\": \"ml\"}},"
        "{\"name\": \"hook\", \"kind\": \"webhook\", \"url_file\": \"address\","
        " \"proxy\": \"http://proxy:3128\", \"ca_file\": \"/ca.pem\"},"
        "{\"name\": \"life\", \"kind\": \"heartbeat\", \"url\": \"https://life\","
        " \"every_sec\": 9}]}";
    assert_int_equal(parse(text, &file, &err), 0);
    const NotifierConfig *c = &file.notifier;
    assert_int_equal(c->n_sinks, 4);
    assert_int_equal(c->timeout_usec, 5 * USEC_PER_SEC);
    assert_int_equal(c->late_usec, 60 * USEC_PER_SEC);
    assert_int_equal(c->retry_max_usec, 7 * USEC_PER_SEC);
    assert_string_equal(file.link, "https://wiki");
    assert_int_equal(c->sinks[0].least,
                     SEVERITY_CRITICAL); /* the default: a pager wakes a person */
    assert_string_equal(file.sinks[0].url, "https://events.pagerduty.com/v2/enqueue");
    assert_string_equal(file.sinks[0].secret, "k3y");
    assert_string_equal(file.sinks[1].url, "http://am:9093/x/api/v2/alerts");
    assert_int_equal(c->sinks[1].least, SEVERITY_INFO);
    assert_int_equal(c->sinks[1].repeat_usec, 60 * USEC_PER_SEC);
    assert_int_equal(c->sinks[1].heartbeat_usec, 60 * USEC_PER_SEC);
    assert_string_equal(file.sinks[2].url, "https://hook/secret");
    assert_string_equal(file.sinks[2].proxy, "http://proxy:3128");
    assert_int_equal(c->sinks[2].least, SEVERITY_WARNING);
    assert_true(c->sinks[3].heartbeat_only);
    assert_int_equal(c->sinks[3].heartbeat_usec, 9 * USEC_PER_SEC);
    alerts_file_clear(&file);

    assert_int_equal(alerts_file_read("", &file, &err), 0);
    assert_int_equal(file.notifier.n_sinks, 0);
}

static void keys_come_from_systemd_too(void **state)
{
    (void)state;
    AlertsFile file;
    Error err = ERROR_INIT;
    assert_int_equal(setenv("CREDENTIALS_DIRECTORY", folder, 1), 0);
    static const char text[] = "{\"sinks\": [{\"name\": \"pager\", \"kind\": \"pagerduty\","
                               " \"routing_key_file\": \"%d/key\"}]}";
    assert_int_equal(alerts_file_parse("elsewhere.json", text, strlen(text), &file, &err), 0);
    assert_string_equal(file.sinks[0].secret, "k3y");
    alerts_file_clear(&file);
    assert_int_equal(unsetenv("CREDENTIALS_DIRECTORY"), 0);
    assert_int_equal(alerts_file_parse("elsewhere.json", text, strlen(text), &file, &err), -EINVAL);
    assert_string_equal(err.text,
                        "elsewhere.json: sinks[0].routing_key_file: %d/key: only a service "
                        "has credentials; CREDENTIALS_DIRECTORY is unset");
}

#define SINK(words) "{\"sinks\": [{\"name\": \"x\", \"kind\": " words "}]}"

static void bad_files_are_refused_by_key_and_value(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error; /* the error that follows the file's name */
    } cases[] = {
        {"{}", "sinks: missing"},
        {"{\"sinks\": [], \"sink\": 1}", "sink: unknown key"},
        {"{\"sinks\": [], \"timeout_sec\": 0}", "timeout_sec: 0 is not in 1..120"},
        {"{\"sinks\": [], \"link\": \"wiki\"}",
         "link: wiki does not begin with http:// or https:// and a host"},
        {"{\"sinks\": [], \"runbook_url\": \"ftp://w\"}",
         "runbook_url: ftp://w does not begin with http:// or https:// and a host"},
        {SINK("\"slack\""), "sinks[0].url: missing; this sink needs url or url_file"},
        {SINK("\"slack\", \"url\": \"https://h\", \"token_file\": \"key\""),
         "sinks[0].token_file: unknown key"},
        {SINK("\"pigeon\""),
         "sinks[0].kind: pigeon is not one of pagerduty, alertmanager, webhook, heartbeat, slack, "
         "email"},
        {SINK("\"webhook\""), "sinks[0].url: missing; this sink needs url or url_file"},
        {SINK("\"webhook\", \"url\": \"ftp://h\""),
         "sinks[0].url: ftp://h does not begin with http:// or https:// and a host"},
        {SINK("\"webhook\", \"url\": \"http:///x\""),
         "sinks[0].url: http:///x does not begin with http:// or https:// and a host"},
        {SINK("\"webhook\", \"url\": \"http://h\", \"least\": \"often\""),
         "sinks[0].least: often is not one of info, warning, critical"},
        {SINK("\"webhook\", \"url\": \"http://h\", \"watchdog\": true"),
         "sinks[0].watchdog: unknown key"},
        {SINK("\"webhook\", \"url_file\": \"key\""),
         "sinks[0].url_file: its content does not begin with http:// or https:// and a host"},
        {SINK("\"pagerduty\""), "sinks[0].routing_key_file: missing"},
        {SINK("\"heartbeat\", \"url\": \"http://h\", \"every_sec\": 0"),
         "sinks[0].every_sec: 0 is not in 1..86400"},
        {SINK("\"alertmanager\", \"url\": \"http://h\", \"labels\": {\"a-b\": \"c\"}"),
         "sinks[0].labels: \"a-b\" is not a label's name"},
        {SINK("\"alertmanager\", \"url\": \"http://h\", \"labels\": {\"job\": \"c\"}"),
         "sinks[0].labels: job is set by the controller"},
        {SINK("\"alertmanager\", \"url\": \"http://h\", \"labels\": {\"a\": 1}"),
         "sinks[0].labels: a: must be a text of at most 255 bytes"},
        {"{\"sinks\": [{\"name\": \"X y\", \"kind\": \"webhook\"}]}",
         "sinks[0].name: \"X y\" is not a name of a-z, 0-9, '.' and '-'"},
        {"{\"sinks\": [{\"name\": \"x\", \"kind\": \"webhook\", \"url\": \"http://h\"},"
         "{\"name\": \"x\", \"kind\": \"webhook\", \"url\": \"http://h\"}]}",
         "sinks[1].name: \"x\" is there twice"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        AlertsFile file;
        Error err = ERROR_INIT;
        char expected[512];
        (void)snprintf(expected, sizeof(expected), "%s/alerts.json: %s", folder, cases[i].error);
        assert_int_equal(parse(cases[i].text, &file, &err), -EINVAL);
        if (strstr(expected, "unknown key")) /* a suggestion follows, which test-base tests */
            err.text[strlen(expected)] = '\0';
        assert_string_equal(err.text, expected);
    }
}

static char warned[512];

static void note_warning(_unused_ LogLevel level, const char *text)
{
    (void)snprintf(warned, sizeof(warned), "%s", text);
}

static void bad_keys_are_refused_and_not_shown(void **state)
{
    (void)state;
    AlertsFile file;
    Error err = ERROR_INIT;
    assert_int_equal(parse(SINK("\"pagerduty\", \"routing_key_file\": \"missing\""), &file, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "sinks[0].routing_key_file: "));
    assert_non_null(strstr(err.text, "/missing"));
    assert_int_equal(parse(SINK("\"pagerduty\", \"routing_key_file\": \"spaces\""), &file, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "is not one printable word"));
    assert_null(strstr(err.text, "two words"));

    char path[64], expected[256];
    (void)snprintf(path, sizeof(path), "%s/address", folder);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(parse(SINK("\"slack\", \"url_file\": \"address\""), &file, &err), -EINVAL);
    (void)snprintf(expected, sizeof(expected),
                   "%s/alerts.json: sinks[0].url_file: everybody on this host may read %s (mode "
                   "0644); chmod o= it",
                   folder, path);
    assert_string_equal(err.text, expected);
    /* A sink of an older kind, such as webhook, may have a file that everybody reads: a warning is logged. */
    warned[0] = '\0';
    log_lend(note_warning);
    assert_int_equal(parse(SINK("\"webhook\", \"url_file\": \"address\""), &file, &err), 0);
    log_lend(NULL);
    alerts_file_clear(&file);
    assert_non_null(strstr(warned, "url_file: everybody on this host may read "));
    assert_non_null(strstr(warned, "/address (mode 0644); chmod o= it"));
    assert_int_equal(chmod(path, 0640), 0);
    warned[0] = '\0';
    log_lend(note_warning);
    assert_int_equal(parse(SINK("\"webhook\", \"url_file\": \"address\""), &file, &err), 0);
    log_lend(NULL);
    alerts_file_clear(&file);
    assert_string_equal(warned, "");
    assert_int_equal(parse(SINK("\"slack\", \"url_file\": \"address\""), &file, &err), 0);
    assert_int_equal(file.notifier.sinks[0].least, SEVERITY_WARNING);
    alerts_file_clear(&file);
}

/* ---- payloads ---- */

#define AT (UINT64_C(1767225600) * USEC_PER_SEC + 250000) /* 2026-01-01 */

static const IncidentRecord incident = {.id = "first-3",
                                        .severity = SEVERITY_CRITICAL,
                                        .job = "first",
                                        .cause = "device-fault",
                                        .node = "n2",
                                        .rank = -1,
                                        .generation = 3,
                                        .step = 7,
                                        .evidence = "Xid \"79\"\n",
                                        .at_usec = AT};

static AlertsFile sinks_of(SinkKind kind)
{
    AlertsFile file = {.notifier = {.n_sinks = 1}};
    file.sinks[0].kind = kind;
    file.notifier.sinks[0].repeat_usec = 60 * USEC_PER_SEC;
    return file;
}

static json_t *say(const AlertsFile *file, MessageKind message_kind, const IncidentRecord *about,
                   Severity told)
{
    Payload payload;
    PayloadCall call = {.cluster = "c",
                        .file = file,
                        .message_kind = message_kind,
                        .incident = about,
                        .told = told,
                        .real_usec = AT + 3600 * USEC_PER_SEC};
    assert_int_equal(payload_make(&call, &payload), 0);
    assert_string_equal(payload.headers[0], "Content-Type: application/json");
    json_t *body = json_loads(payload.body, 0, NULL);
    assert_non_null(body);
    payload_clear(&payload);
    assert_null(payload.body);
    return body;
}

static const char *text_at(json_t *body, const char *a, const char *b)
{
    json_t *inner = json_object_get(body, a);
    const char *text = json_string_value(b ? json_object_get(inner, b) : inner);
    assert_non_null(text);
    return text;
}

static void pagerduty_is_told_in_its_words(void **state)
{
    (void)state;
    AlertsFile file = sinks_of(SINK_PAGERDUTY);
    (void)snprintf(file.sinks[0].secret, sizeof(file.sinks[0].secret), "k3y");
    _cleanup_json_ json_t *body = say(&file, NOTIFY_TRIGGER, &incident, SEVERITY_CRITICAL);
    assert_string_equal(text_at(body, "routing_key", NULL), "k3y");
    assert_string_equal(text_at(body, "dedup_key", NULL), "c/first-3/1767225600");
    assert_string_equal(text_at(body, "payload", "timestamp"), "2026-01-01T00:00:00.250Z");
    assert_string_equal(text_at(body, "payload", "summary"),
                        "c, job first: device-fault on n2: Xid \"79\"\n");
    assert_string_equal(text_at(body, "payload", "group"), "c/first");
    assert_string_equal(text_at(body, "payload", "severity"), "critical");
    assert_null(json_object_get(body, "links"));
    _cleanup_json_ json_t *end = say(&file, NOTIFY_RESOLVE, &incident, SEVERITY_CRITICAL);
    assert_int_equal(json_object_size(end), 3);
    assert_string_equal(text_at(end, "event_action", NULL), "resolve");
}

static void alertmanager_hears_that_a_warning_has_become_critical(void **state)
{
    (void)state;
    AlertsFile file = sinks_of(SINK_ALERTMANAGER);
    _cleanup_json_ json_t *body = say(&file, NOTIFY_TRIGGER, &incident, SEVERITY_WARNING);
    /* Labels identify an alert, so an alert of another severity is another alert. */
    assert_int_equal(json_array_size(body), 2);
    json_t *now = json_array_get(body, 0), *before = json_array_get(body, 1);
    assert_string_equal(text_at(now, "labels", "severity"), "critical");
    assert_string_equal(text_at(now, "endsAt", NULL), "2026-01-01T01:04:00.250Z");
    assert_string_equal(text_at(before, "labels", "severity"), "warning");
    assert_string_equal(text_at(before, "endsAt", NULL), "2026-01-01T01:00:00.250Z");
    IncidentRecord over = incident;
    over.state = INCIDENT_RESOLVED;
    over.resolved_usec = AT + USEC_PER_SEC;
    _cleanup_json_ json_t *end = say(&file, NOTIFY_RESOLVE, &over, SEVERITY_WARNING);
    assert_string_equal(text_at(json_array_get(end, 0), "labels", "severity"), "warning");
    assert_string_equal(text_at(json_array_get(end, 0), "endsAt", NULL),
                        "2026-01-01T00:00:01.250Z");
}

static void the_runbook_of_its_cause_is_linked(void **state)
{
    (void)state;
    AlertsFile file = sinks_of(SINK_WEBHOOK);
    char link[PAYLOAD_LINK_BYTES];
    assert_string_equal(payload_link(&file, &incident, link), "");
    (void)snprintf(file.link, sizeof(file.link), "https://wiki");
    assert_string_equal(payload_link(&file, &incident, link), "https://wiki");
    (void)snprintf(file.runbook_url, sizeof(file.runbook_url), "https://docs/runbooks//");
    assert_string_equal(payload_link(&file, &incident, link),
                        "https://docs/runbooks/nodes.md#sdtrainnodequarantined");
    IncidentRecord unknown = {.cause = "something-new"};
    assert_string_equal(payload_link(&file, &unknown, link), "https://docs/runbooks/README.md");

    _cleanup_json_ json_t *body = say(&file, NOTIFY_TRIGGER, &incident, SEVERITY_CRITICAL);
    assert_string_equal(text_at(body, "link", NULL),
                        "https://docs/runbooks/nodes.md#sdtrainnodequarantined");
    assert_string_equal(
        text_at(body, "text", NULL),
        "critical: c, job first: device-fault on n2: Xid \"79\"\n\nWhat to do: The node is in "
        "quarantine. Check the device (sdctl node status), repair or replace it, then sdctl node "
        "uncordon.\nhttps://docs/runbooks/nodes.md#sdtrainnodequarantined");
    _cleanup_json_ json_t *end = say(&file, NOTIFY_RESOLVE, &incident, SEVERITY_CRITICAL);
    assert_string_equal(text_at(end, "text", NULL),
                        "resolved: c, job first: device-fault on n2: Xid \"79\"\n");
}

/* Appends one line that shows a block: its type, then its texts. */
static void add_block(const json_t *block, char *ret, size_t size)
{
    size_t i, n = strlen(ret);
    json_t *one;
    n += (size_t)snprintf(ret + n, size - n, "%s[",
                          json_string_value(json_object_get(block, "type")));
    json_t *texts = json_object_get(block, "fields") ? json_object_get(block, "fields")
                                                     : json_object_get(block, "elements");
    json_array_foreach (texts, i, one)
        n += (size_t)snprintf(ret + n, size - n, "%s%s", i ? "|" : "",
                              json_string_value(json_object_get(one, "text")));
    const char *text = json_string_value(json_object_get(json_object_get(block, "text"), "text"));
    (void)snprintf(ret + n, size - n, "%s]\n", text ? text : "");
}

static void check_slack(const AlertsFile *file, MessageKind kind, const IncidentRecord *about,
                        const char *text, const char *blocks)
{
    char shown[4096] = "";
    size_t i;
    json_t *block;
    _cleanup_json_ json_t *body = say(file, kind, about, about->severity);
    assert_string_equal(text_at(body, "text", NULL), text);
    json_array_foreach (json_object_get(body, "blocks"), i, block)
        add_block(block, shown, sizeof(shown));
    assert_string_equal(shown, blocks);
}

static void slack_is_told_in_blocks(void **state)
{
    (void)state;
    AlertsFile file = sinks_of(SINK_SLACK);
    (void)snprintf(file.runbook_url, sizeof(file.runbook_url), "https://docs/?a&b|c");
    IncidentRecord about = incident;
    (void)snprintf(about.evidence, sizeof(about.evidence), "<!channel> & more");
    check_slack(&file, NOTIFY_TRIGGER, &about,
                "critical: c, job first: device-fault on n2: &lt;!channel&gt; &amp; more\nWhat to "
                "do: The node is in quarantine. Check the device (sdctl node status), repair or "
                "replace it, then sdctl node "
                "uncordon.\nhttps://docs/?a&amp;b|c/nodes.md#sdtrainnodequarantined",
                "header[critical: device-fault on n2]\n"
                "section[*Severity*\ncritical|*Cluster*\nc|*Job*\nfirst|*Node*\nn2|"
                "*Since*\n<!date^1767225600^{date_num} {time_secs}|2026-01-01T00:00:00.250Z>]\n"
                "section[*What happened*\n&lt;!channel&gt; &amp; more]\n"
                "section[*What to do*\nThe node is in quarantine. Check the device (sdctl node "
                "status), repair or replace it, then sdctl node uncordon.]\n"
                "section[<https://docs/?a&amp;b%7Cc/nodes.md#sdtrainnodequarantined|Runbook>]\n"
                "context[c/first-3/1767225600]\n");
    IncidentRecord over = {.id = "x",
                           .cause = "nodes-lost",
                           .rank = -1,
                           .at_usec = AT,
                           .resolved_usec = AT + 60 * USEC_PER_SEC};
    AlertsFile bare = sinks_of(SINK_SLACK);
    check_slack(
        &bare, NOTIFY_RESOLVE, &over, "resolved: c: nodes-lost",
        "header[resolved: nodes-lost]\n"
        "section[*Severity*\ninfo|*Cluster*\nc|"
        "*Since*\n<!date^1767225600^{date_num} {time_secs}|2026-01-01T00:00:00.250Z>|"
        "*Over since*\n<!date^1767225660^{date_num} {time_secs}|2026-01-01T00:01:00.250Z>]\n"
        "context[c/x/1767225600]\n");
}

/* The longest record stays below Slack's limits: a header of 150 characters, a section of 3,000, a field of 2,000. */
static void slack_takes_the_longest_record(void **state)
{
    (void)state;
    AlertsFile file = sinks_of(SINK_SLACK);
    IncidentRecord longest = {.id = "x", .rank = -1};
    memset(longest.evidence, '<', sizeof(longest.evidence) - 1);
    memset(longest.cause, 'c', sizeof(longest.cause) - 1);
    memset(longest.node, 'n', sizeof(longest.node) - 1);
    memset(longest.job, 'j', sizeof(longest.job) - 1);
    _cleanup_json_ json_t *body = say(&file, NOTIFY_TRIGGER, &longest, SEVERITY_INFO);
    size_t i;
    json_t *block;
    json_array_foreach (json_object_get(body, "blocks"), i, block) {
        const char *text =
            json_string_value(json_object_get(json_object_get(block, "text"), "text"));
        assert_true(!text || strlen(text) <= (i == 0 ? 150 : 3000));
    }
}

static void every_sink_has_words_for_everything(void **state)
{
    (void)state;
    IncidentRecord bare = {.id = "cluster-9", .cause = "something-new", .rank = -1};
    for (int kind = SINK_PAGERDUTY; kind <= SINK_SLACK; kind++)
        for (int message_kind = NOTIFY_TRIGGER; message_kind <= NOTIFY_HEARTBEAT; message_kind++) {
            AlertsFile file = sinks_of((SinkKind)kind);
            _cleanup_json_ json_t *body =
                say(&file, (MessageKind)message_kind, &bare, SEVERITY_INFO);
            assert_non_null(body);
        }
}

/* ---- answers ---- */

static SecretSet handed; /* the secrets that the sink was given */

static Answer read_reply(int status, int64_t retry_after, const char *body)
{
    Answer answer;
    HttpReply reply = {.status = status,
                       .failure = "Connection refused",
                       .retry_after_sec = retry_after,
                       .body = body,
                       .n_body = strlen(body)};
    answer_read(&reply, &handed, &answer);
    return answer;
}

static void answers_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        int status;
        AnswerKind kind;
    } cases[] = {{0, ANSWER_AGAIN},      {200, ANSWER_ACCEPTED}, {202, ANSWER_ACCEPTED},
                 {204, ANSWER_ACCEPTED}, {302, ANSWER_REFUSED},  {400, ANSWER_REFUSED},
                 {401, ANSWER_REFUSED},  {404, ANSWER_REFUSED},  {408, ANSWER_AGAIN},
                 {425, ANSWER_AGAIN},    {429, ANSWER_AGAIN},    {500, ANSWER_AGAIN},
                 {503, ANSWER_AGAIN},    {100, ANSWER_REFUSED}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Answer answer = read_reply(cases[i].status, 0, "");
        assert_int_equal(answer.kind, cases[i].kind);
        assert_int_equal(answer.pause_usec, 0);
    }
    assert_string_equal(read_reply(0, 0, "").text, "Connection refused");
    assert_int_equal(read_reply(429, 30, "").pause_usec, 30 * USEC_PER_SEC);
    assert_int_equal(read_reply(503, INT64_MAX, "").pause_usec, 86400 * USEC_PER_SEC);
    assert_int_equal(read_reply(503, -5, "").pause_usec, 0);
    assert_int_equal(read_reply(400, 30, "").pause_usec,
                     0); /* no pause: the sink would refuse the same message later, too */
}

static void what_a_sink_says_is_shown(void **state)
{
    (void)state;
    assert_string_equal(
        read_reply(400, 0, "{\"status\":\"invalid event\",\"message\":\"m\",\"errors\":[\"e\"]}")
            .text,
        "HTTP 400: e");
    assert_string_equal(read_reply(400, 0, "{\"message\":\"m\\u001b[1m\"}").text,
                        "HTTP 400: m [1m");
    assert_string_equal(read_reply(400, 0, "\"bad label\"").text, "HTTP 400: bad label");
    assert_string_equal(read_reply(502, 0, "<html>\r\n\xff").text, "HTTP 502: <html>   ");
    assert_string_equal(read_reply(404, 0, "").text, "HTTP 404");
    char longer[4096];
    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(strlen(read_reply(500, 0, longer).text), 127);
}

static void what_a_sink_repeats_is_not_shown(void **state)
{
    (void)state;
    AlertsFile file = sinks_of(SINK_WEBHOOK);
    Sink *sink = &file.sinks[0];
    (void)snprintf(sink->url, sizeof(sink->url), "https://hooks.example/services/T0/secretpath");
    (void)snprintf(sink->secret, sizeof(sink->secret), "bearer/token+1");
    (void)snprintf(sink->proxy, sizeof(sink->proxy), "http://me:proxy-word@127.0.0.1:3128");
    sink_add_secrets(sink, &handed);
    assert_string_equal(
        read_reply(404, 0, "POST /services/T0/secretpath of hooks.example with bearer/token+1")
            .text,
        "HTTP 404: POST /*** of hooks.example with ***");
    assert_string_equal(
        read_reply(404, 0, "{\"message\":\"no \\/services\\/T0\\/secretpath\"}").text,
        "HTTP 404: no /***");
    assert_string_equal(read_reply(407, 0, "bWU6cHJveHktd29yZA== is none of us").text,
                        "HTTP 407: *** is none of us");
    /* The text is cut in the middle of the secret, which is removed before the cut. */
    char longer[200];
    memset(longer, 'x', sizeof(longer));
    (void)snprintf(longer + 112, sizeof(longer) - 112, "bearer/token+1");
    assert_null(strstr(read_reply(500, 0, longer).text, "bear"));
    HttpReply none = {.failure = "Unsupported proxy syntax in 'http://me:proxy-word@127.0.0.1:x'"};
    Answer answer;
    answer_read(&none, &handed, &answer);
    assert_string_equal(answer.text, "Unsupported proxy syntax in 'http://***@127.0.0.1:x'");
    MailReply mail = {.status = 535, .words = "535 5.7.8 AG1lAGJlYXJlci90b2tlbisx is wrong"};
    answer_read_mail(&mail, &handed, &answer);
    assert_string_equal(answer.text, "SMTP 535: 5.7.8 *** is wrong");
    secret_set_clear(&handed);

    file.sinks[0] = (Sink){.kind = SINK_ALERTMANAGER,
                           .url = "http://me:am-word@alerts.example/prefix/api/v2/alerts"};
    sink_add_secrets(&file.sinks[0], &handed);
    assert_string_equal(read_reply(404, 0, "no /prefix/api/v2/alerts for am-word").text,
                        "HTTP 404: no /***/api/v2/alerts for ***");
    secret_set_clear(&handed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_says_who_hears_of_what),
        cmocka_unit_test(keys_come_from_systemd_too),
        cmocka_unit_test(bad_files_are_refused_by_key_and_value),
        cmocka_unit_test(bad_keys_are_refused_and_not_shown),
        cmocka_unit_test(pagerduty_is_told_in_its_words),
        cmocka_unit_test(alertmanager_hears_that_a_warning_has_become_critical),
        cmocka_unit_test(the_runbook_of_its_cause_is_linked),
        cmocka_unit_test(slack_is_told_in_blocks),
        cmocka_unit_test(slack_takes_the_longest_record),
        cmocka_unit_test(every_sink_has_words_for_everything),
        cmocka_unit_test(answers_are_told_apart),
        cmocka_unit_test(what_a_sink_says_is_shown),
        cmocka_unit_test(what_a_sink_repeats_is_not_shown),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
