/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-alerts.c - any bytes as an alerts file, and as a sink's reply. A file is either refused with a text, or makes
 * a message for each of its sinks. */
#include "controller/alerting/answer.h"
#include "controller/alerting/payload.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_reply(const uint8_t *data, size_t size)
{
    enum { HEAD = 2 + sizeof(int64_t) };
    if (size < HEAD)
        return;
    HttpReply reply = {.status = (data[0] << 8 | data[1]) % 700,
                       .failure = "failure",
                       .body = (const char *)data + HEAD,
                       .n_body = size - HEAD};
    memcpy(&reply.retry_after_sec, data + 2, sizeof(reply.retry_after_sec));
    Answer answer;
    _cleanup_(secret_set_clear) SecretSet secrets = {0};
    secret_set_add(&secrets, "fuzz");
    answer_read(&reply, &secrets, &answer);
    assert(!strstr(answer.text, "fuzz"));
    assert(strnlen(answer.text, sizeof(answer.text)) < sizeof(answer.text));
    assert(answer.kind == ANSWER_ACCEPTED || answer.text[0]);
    assert(answer.pause_usec <= 86400 * USEC_PER_SEC);
    for (const char *p = answer.text; *p; p++)
        assert(*p >= 0x20 && *p < 0x7f);
}

static void try_file(const uint8_t *data, size_t size)
{
    AlertsFile file;
    Error err = ERROR_INIT;
    if (alerts_file_parse("alerts.json", (const char *)data, size, &file, &err) < 0) {
        assert(err.text[0]);
        return;
    }
    const IncidentRecord incident = {.id = "a-1", .cause = "hang", .rank = 1, .at_usec = 1};
    for (int k = 0; k < file.notifier.n_sinks; k++)
        for (int message_kind = NOTIFY_TRIGGER; message_kind <= NOTIFY_HEARTBEAT; message_kind++) {
            PayloadCall call = {.cluster = "c",
                                .file = &file,
                                .sink = k,
                                .message_kind = (MessageKind)message_kind,
                                .incident = message_kind == NOTIFY_HEARTBEAT ? NULL : &incident,
                                .told = SEVERITY_CRITICAL,
                                .real_usec = 1};
            Payload payload;
            assert(payload_make(&call, &payload) == 0);
            payload_clear(&payload);
        }
    alerts_file_clear(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == '!')
        try_reply(data + 1, size - 1);
    else
        try_file(data, size);
    return 0;
}
