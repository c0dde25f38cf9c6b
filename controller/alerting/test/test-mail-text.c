/* SPDX-License-Identifier: Apache-2.0 */
/* test-mail-text.c - mails as bytes. tests/system/test-mail.py tests the mails that a server receives. */
#include "base/test/testing.h"
#include "controller/alerting/answer.h"
#include "controller/alerting/mail.h"

#include <string.h>

#define AT (UINT64_C(1767225600) * USEC_PER_SEC) /* 2026-01-01, a Thursday */

static const char key[] = "c/first.-3/1767225600";

static char *make(MessageKind kind, Severity told, const IncidentRecord *incident)
{
    AlertsFile file = {.sinks = {{.kind = SINK_EMAIL, .from = "sd@example.org"}}};
    file.sinks[0].to = json_pack("[s, s]", "ann@example.org", "bob@example.org");
    PayloadCall call = {.cluster = "c",
                        .file = &file,
                        .message_kind = kind,
                        .incident = incident,
                        .told = told,
                        .real_usec = AT + 3600 * USEC_PER_SEC};
    char *text = mail_text(&call, key);
    alerts_file_clear(&file);
    return text;
}

static void a_mail_has_headers_and_a_text(void **state)
{
    (void)state;
    IncidentRecord incident = {.severity = SEVERITY_WARNING,
                               .job = "first",
                               .cause = "hang",
                               .rank = 0,
                               .step = 7,
                               .lost_steps = 2,
                               .evidence = "a=b ",
                               .at_usec = AT,
                               .resolved_usec = AT + 75 * USEC_PER_SEC};
    _cleanup_free_ char *text = make(NOTIFY_RESOLVE, SEVERITY_WARNING, &incident);
    assert_string_equal(text, "Date: Thu, 01 Jan 2026 01:00:00 +0000\r\n"
                              "From: <sd@example.org>\r\n"
                              "To: <ann@example.org>,\r\n"
                              " <bob@example.org>\r\n"
                              "Subject: [c] resolved: hang, job first\r\n"
                              "Message-ID: <c/first_-3/1767225600.resolved@example.org>\r\n"
                              "In-Reply-To: <c/first_-3/1767225600@example.org>\r\n"
                              "References: <c/first_-3/1767225600@example.org>\r\n"
                              "Auto-Submitted: auto-generated\r\n"
                              "MIME-Version: 1.0\r\n"
                              "Content-Type: text/plain; charset=utf-8\r\n"
                              "Content-Transfer-Encoding: quoted-printable\r\n"
                              "\r\n"
                              "It is over: hang: a=3Db=20\r\n"
                              "\r\n"
                              "Severity:     warning\r\n"
                              "Cluster:      c\r\n"
                              "Job:          first\r\n"
                              "Rank:         0\r\n"
                              "Step:         7, 2 lost\r\n"
                              "Since:        2026-01-01T00:00:00.000Z\r\n"
                              "Over since:   2026-01-01T00:01:15.000Z, after 1 min 15 s\r\n"
                              "\r\n"
                              "--=20\r\n"
                              "incident c/first.-3/1767225600\r\n");
}

static const char *header(const char *text, const char *name, char *ret, size_t size)
{
    const char *at = strstr(text, name);
    assert_non_null(at);
    at += strlen(name);
    size_t n = 0;
    while (strncmp(at + n, "\r\n", 2) != 0 || at[n + 2] == ' ')
        n++;
    (void)snprintf(ret, size, "%.*s", (int)n, at);
    return ret;
}

static void only_the_first_mail_opens_a_thread(void **state)
{
    (void)state;
    char id[256];
    IncidentRecord incident = {.severity = SEVERITY_CRITICAL, .cause = "hang", .rank = -1};
    _cleanup_free_ char *first = make(NOTIFY_TRIGGER, SEVERITY_CRITICAL, &incident);
    assert_string_equal(header(first, "Message-ID: ", id, sizeof(id)),
                        "<c/first_-3/1767225600@example.org>");
    assert_null(strstr(first, "References"));
    _cleanup_free_ char *worse = make(NOTIFY_TRIGGER, SEVERITY_INFO, &incident);
    assert_string_equal(header(worse, "Message-ID: ", id, sizeof(id)),
                        "<c/first_-3/1767225600.critical@example.org>");
    assert_string_equal(header(worse, "References: ", id, sizeof(id)),
                        "<c/first_-3/1767225600@example.org>");
}

static void no_text_can_begin_a_header(void **state)
{
    (void)state;
    char subject[512];
    IncidentRecord incident = {.cause = "x\r\nBcc: eve@h\r\n", .rank = -1};
    _cleanup_free_ char *text = make(NOTIFY_TRIGGER, SEVERITY_INFO, &incident);
    assert_true(strstr(text, "\nBcc") >
                strstr(text, "\r\n\r\n")); /* the line is in the body, which may hold any text */
    assert_string_equal(header(text, "Subject: ", subject, sizeof(subject)),
                        "=?utf-8?Q?[c]=20info:=20x=0D=0ABcc:=20eve@h=0D=0A?=");
    (void)snprintf(incident.cause, sizeof(incident.cause), "=?utf-8?Q?hello?=");
    _cleanup_free_ char *feigned = make(NOTIFY_TRIGGER, SEVERITY_INFO, &incident);
    assert_string_equal(header(feigned, "Subject: ", subject, sizeof(subject)),
                        "=?utf-8?Q?[c]=20info:=20=3D=3Futf-8=3FQ=3Fhello=3F=3D?=");
}

static void long_words_end_between_characters(void **state)
{
    (void)state;
    char subject[512];
    IncidentRecord incident = {.rank = -1};
    for (int i = 0; i < 15; i++)
        memcpy(incident.cause + 3 * i, "\xe2\x80\x93", 3);
    _cleanup_free_ char *text = make(NOTIFY_TRIGGER, SEVERITY_INFO, &incident);
    assert_string_equal(
        header(text, "Subject: ", subject, sizeof(subject)),
        "=?utf-8?Q?[c]=20info:=20=E2=80=93=E2=80=93=E2=80=93=E2=80=93?=\r\n"
        " =?utf-8?Q?=E2=80=93=E2=80=93=E2=80=93=E2=80=93=E2=80=93=E2=80=93=E2=80=93?=\r\n"
        " =?utf-8?Q?=E2=80=93=E2=80=93=E2=80=93=E2=80=93?=");
    for (const char *line = text; *line; line = strstr(line, "\r\n") + 2)
        assert_true(strstr(line, "\r\n") - line <= 76);
}

static void addresses_are_told_from_everything_else(void **state)
{
    (void)state;
    static const char *const good[] = {"a@b", "ann.b+c@mail-1.example.org", "x'y@h"};
    static const char *const bad[] = {"",           "ann",   "@h",       "a@",      "a@@h",
                                      "a b@h",      "<a@h>", "a@h\r\nX", "a,b@h",   "\"a\"@h",
                                      "a@h,b",      "a@.h",  "a@h.",     "a@[::1]", "\xc3\xa4@h",
                                      "a@\xc3\xa4", "a\t@h", "a:b@h"};
    for (size_t i = 0; i < ELEMENTSOF(good); i++)
        assert_true(sink_address_is_valid(good[i]));
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_false(sink_address_is_valid(bad[i]));
    char longest[300];
    memset(longest, 'a', sizeof(longest));
    longest[65] = '@';
    longest[70] = '\0';
    assert_false(sink_address_is_valid(longest));
}

static void answers_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        MailReply reply;
        AnswerKind kind;
        const char *text;
    } cases[] = {
        {{250, "", ""}, ANSWER_ACCEPTED, ""},
        {{250, "", "550 no such user"}, ANSWER_ACCEPTED, ""},
        {{451, "x", "451 4.7.1 later\x1b"}, ANSWER_AGAIN, "SMTP 451: 4.7.1 later "},
        {{421, "x", ""}, ANSWER_AGAIN, "SMTP 421"},
        {{535, "x", "535-5.7.8 wrong"}, ANSWER_REFUSED, "SMTP 535: 5.7.8 wrong"},
        {{0, "Connection refused", ""}, ANSWER_AGAIN, "Connection refused"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Answer answer;
        answer_read_mail(&cases[i].reply, &(SecretSet){0}, &answer);
        assert_int_equal(answer.kind, cases[i].kind);
        assert_string_equal(answer.text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mail_has_headers_and_a_text),
        cmocka_unit_test(only_the_first_mail_opens_a_thread),
        cmocka_unit_test(no_text_can_begin_a_header),
        cmocka_unit_test(long_words_end_between_characters),
        cmocka_unit_test(addresses_are_told_from_everything_else),
        cmocka_unit_test(answers_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
