/* SPDX-License-Identifier: Apache-2.0 */
/* test-channel.c - every message is received as it was sent; bad packets and a closed channel give different errors. */
#include "base/json/json.h"
#include "base/memory.h"
#include "base/test/testing.h"
#include "protocol/channel.h"

#include <math.h>
#include <string.h>
#include <sys/socket.h>

static int pair[2];

static int open_pair(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int close_pair(void **state)
{
    (void)state;
    pair[0] = fd_close(pair[0]);
    pair[1] = fd_close(pair[1]);
    return 0;
}

#define SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* Makes a message with a value in each field. */
static ChannelMessage full(ChannelType type)
{
    ChannelMessage m = {.type = type, .generation = 7, .step = 123456789012};
    switch (type) {
    case CHANNEL_ASSIGN:
        m.assign = (ChannelAssign){.rank = 2,
                                   .world_size = 3,
                                   .job = "demo",
                                   .node = "n1",
                                   .spec = "{\"name\": \"demo\"}",
                                   .resume_uri = "file:///c/manifest.json",
                                   .resume_hash = {1, 2},
                                   .resume_step = 400,
                                   .gpus = "GPU-1,GPU-2",
                                   .find = 2,
                                   .adopt = true,
                                   .takes_over = "r17",
                                   .sources = "hashes of the data",
                                   .submission = "00112233445566778899aabbccddeeff",
                                   .gpu = "0000:3b:00",
                                   .bind_address = "127.0.0.1",
                                   .secret = SECRET,
                                   .numerics = "{\"isa\":\"avx2\"}",
                                   .startup_usec = 30000000,
                                   .alive_usec = 2000000};
        break;
    case CHANNEL_ALIVE:
        m.alive_usec = 3000000;
        m.lease_usec = 4000000;
        break;
    case CHANNEL_COMMITTED:
        m.held = (ChannelHeld){.steps = {5, 123456789012}, .n = 2};
        break;
    case CHANNEL_GO:
        m.held = (ChannelHeld){.steps = {7}, .n = 1};
        (void)snprintf(m.address, sizeof(m.address), "127.0.0.1:4000");
        break;
    case CHANNEL_RENDEZVOUS:
        (void)snprintf(m.address, sizeof(m.address), "127.0.0.1:4000");
        break;
    case CHANNEL_HELLO:
        m.pid = 42;
        break;
    case CHANNEL_STAGE:
        m.stage = STAGE_REDUCING;
        m.waited_usec = 7000000;
        m.waits_rank = 3;
        m.unnamed = true;
        break;
    case CHANNEL_HUNG:
    case CHANNEL_ERROR:
        m.stage = STAGE_JOINING;
        m.exit_code = 84;
        m.unmet = 2;
        m.hung = m.stuck = m.unnamed = true;
        (void)snprintf(m.text, sizeof(m.text), "loss is not finite: \"nan\"\n");
        break;
    case CHANNEL_STEP:
        m = (ChannelMessage){.type = type,
                             .generation = 7,
                             .step = 123456789012,
                             .loss = 0x1.23456789abcdep-3,
                             .samples_per_sec = 12.5,
                             .samples_seen = 99,
                             .grad_norm = 1.5,
                             .lr = 0.001,
                             .steps = 1000,
                             .step_sec = 0.25,
                             .data_sec = 0.125,
                             .saving_sec = 2.5,
                             .failed_saves = 3,
                             .unsaved_since_usec = 17000000,
                             .save_error = "s3://b/c: no answer for 300 s",
                             .save_next_bytes = 34000000000,
                             .save_free_bytes = 12000000000,
                             .diverging_since = 12,
                             .diverging = "the loss is 5e+07, and was 1.17 at best",
                             .metrics_lost = 7,
                             .metrics_lost_first = 5,
                             .metrics_lost_last = 20};
        break;
    case CHANNEL_SAVED:
    case CHANNEL_FOUND:
    case CHANNEL_DONE:
        m = (ChannelMessage){.type = type,
                             .generation = 7,
                             .step = 123456789012,
                             .uri = "file:///m",
                             .hash = {3, 4},
                             .digest = {5, UINT64_MAX},
                             .end = "finished",
                             .made_by = 6,
                             .plans = "0123456789abcdef0123456789abcdef",
                             .more = true,
                             .write_sec = 1.5,
                             .blocked_sec = 0.5,
                             .saved_bytes = 34000000000,
                             .store = {.puts = 8, .gets = 9, .put_sec = 0.75, .get_sec = 0.25}};
        break;
    case CHANNEL_RESULTS:
        m = (ChannelMessage){.type = type,
                             .generation = 7,
                             .step = 123456789012,
                             .results = {.numbers = {{"fid", 12.5}, {"clip", -0.25}},
                                         .n_numbers = 2,
                                         .artifacts = {{"grid", "s3://b/grid.png"}},
                                         .n_artifacts = 1,
                                         .text = "all well",
                                         .seconds = 61.5}};
        break;
    default:
        break;
    }
    return m;
}

static json_t *json_of(const ChannelMessage *message)
{
    Error err = ERROR_INIT;
    char *text;
    size_t n;
    assert_int_equal(channel_encode(message, &text, &n, &err), 0);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    free(text);
    return json;
}

static bool is_nothing(const json_t *value)
{
    return json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_string(value) &&
            strspn(json_string_value(value), "0") == strlen(json_string_value(value)));
}

/* Every field of every message is received with its own value, not with the value of another field of the union. */
static void every_message_survives(void **state)
{
    (void)state;
    for (int type = 0; type < CHANNEL_TYPES; type++) {
        ChannelMessage out = full((ChannelType)type), in = {0};
        const char *key;
        json_t *value;
        Error err = ERROR_INIT;
        assert_int_equal(channel_send(pair[0], &out, &err), 0);
        assert_int_equal(channel_receive(pair[1], &in, &err), 0);
        assert_int_equal(in.type, type);
        _cleanup_json_ json_t *a = json_of(&out), *b = json_of(&in);
        assert_true(json_equal(a, b));
        json_object_foreach (a, key, value)
            if (is_nothing(value))
                fail_msg("%s: nobody has filled %s", channel_type_name((ChannelType)type), key);
        if (type == CHANNEL_STEP)
            assert_true(in.loss == out.loss);
        if (type == CHANNEL_ASSIGN)
            assert_string_equal(in.assign.spec, out.assign.spec);
        channel_message_clear(&in);
    }
}

static void a_loss_that_is_not_a_number_travels(void **state)
{
    (void)state;
    ChannelMessage out = {.type = CHANNEL_STEP, .loss = NAN}, in = {0};
    Error err = ERROR_INIT;
    assert_int_equal(channel_send(pair[0], &out, &err), 0);
    assert_int_equal(channel_receive(pair[1], &in, &err), 0);
    assert_true(isnan(in.loss));
}

/* A text that was cut within a character does not make the message unreadable. */
static void a_text_that_was_cut_travels(void **state)
{
    (void)state;
    ChannelMessage out = {.type = CHANNEL_STEP, .save_error = "cannot write \xc3\xa9\xc3"},
                   in = {0};
    Error err = ERROR_INIT;
    assert_int_equal(channel_send(pair[0], &out, &err), 0);
    assert_int_equal(channel_receive(pair[1], &in, &err), 0);
    assert_string_equal(in.save_error, "cannot write \xc3\xa9");
}

/* Fields that an older trainer does not send are 0. */
static void an_older_step_is_read(void **state)
{
    (void)state;
    static const char packet[] =
        "{\"type\":\"step\",\"generation\":1,\"step\":2,\"loss\":0.5,\"samples_per_sec\":1,"
        "\"samples_seen\":8,\"steps\":9,\"step_sec\":0.1}";
    ChannelMessage in = {0};
    Error err = ERROR_INIT;
    assert_int_equal(channel_decode(packet, strlen(packet), &in, &err), 0);
    assert_int_equal(in.failed_saves, 0);
    assert_int_equal(in.unsaved_since_usec, 0);
    assert_string_equal(in.save_error, "");
}

/* A field that an older daemon does not send is empty: such a daemon does not report the slot's GPU. */
static void an_older_assign_is_read(void **state)
{
    (void)state;
    ChannelMessage out = {.type = CHANNEL_ASSIGN, .assign.gpu = "0000:3b:00"}, in = {0},
                   older = {0};
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = NULL;
    _cleanup_free_ char *without = NULL;
    char spec[] = "{}";
    size_t n;
    out.assign.spec = spec;
    assert_int_equal(channel_encode(&out, &text, &n, &err), 0);
    assert_int_equal(channel_decode(text, n, &in, &err), 0);
    assert_string_equal(in.assign.gpu, "0000:3b:00");
    _cleanup_json_ json_t *json = json_loads(text, 0, NULL);
    assert_int_equal(json_object_del(json, "gpu"), 0);
    without = json_dumps(json, 0);
    assert_int_equal(channel_decode(without, strlen(without), &older, &err), 0);
    assert_string_equal(older.assign.gpu, "");
    channel_message_clear(&in);
    channel_message_clear(&older);
}

static void bad_packets_are_named(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "{\"type\":\"dance\"}",
                                      "{\"type\":\"ready\"}",
                                      "{\"type\":\"go\",\"generation\":1,\"address\":7}"};
    for (size_t i = 1; i < ELEMENTSOF(bad); i++) {
        ChannelMessage in = {0};
        Error err = ERROR_INIT;
        assert_true(send(pair[0], bad[i], strlen(bad[i]), 0) >= 0);
        assert_int_equal(channel_receive(pair[1], &in, &err), -EBADMSG);
        assert_true(*err.text);
    }
}

static void silence_and_end_differ(void **state)
{
    (void)state;
    ChannelMessage in = {0};
    Error err = ERROR_INIT;
    assert_int_equal(channel_receive(pair[1], &in, &err), -EAGAIN);
    pair[0] = fd_close(pair[0]);
    assert_int_equal(channel_receive(pair[1], &in, &err), -EPIPE);
    ChannelMessage out = {.type = CHANNEL_READY};
    assert_int_equal(channel_send(pair[1], &out, &err), -EPIPE);
}

/* The last words of a peer that ends with unread messages are not lost. */
static void last_words_survive_unread_messages(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    ChannelMessage out = {.type = CHANNEL_READY, .step = 3}, in = {0};
    const ChannelMessage alive = {.type = CHANNEL_ALIVE, .alive_usec = 1};
    assert_int_equal(channel_send(pair[1], &alive, &err), 0); /* never read */
    assert_int_equal(channel_send(pair[0], &out, &err), 0);
    out.step = 4;
    assert_int_equal(channel_send(pair[0], &out, &err), 0);
    pair[0] = fd_close(pair[0]);
    for (int step = 3; step <= 4; step++) {
        assert_int_equal(channel_receive(pair[1], &in, &err), 0);
        assert_int_equal(in.step, step);
    }
    assert_int_equal(channel_receive(pair[1], &in, &err), -EPIPE);
}

static void too_long_is_refused_before_sending(void **state)
{
    (void)state;
    ChannelMessage out = {.type = CHANNEL_ASSIGN};
    out.assign.spec = malloc(CHANNEL_PACKET_MAX + 1);
    assert_non_null(out.assign.spec);
    memset(out.assign.spec, 'a', CHANNEL_PACKET_MAX);
    out.assign.spec[CHANNEL_PACKET_MAX] = '\0';
    Error err = ERROR_INIT;
    assert_int_equal(channel_send(pair[0], &out, &err), -EMSGSIZE);
    channel_message_clear(&out);
}

/* An assign message with the longest spec that sdctl submits, and with the longest texts in all other fields, fits. */
static void a_spec_that_passes_fits(void **state)
{
    (void)state;
    ChannelMessage *out = memory_new(ChannelMessage);
    char *packet = NULL;
    size_t n;
    Error err = ERROR_INIT;
    char *spec = malloc(CHANNEL_SPEC_MAX);
    assert_non_null(spec);
    memset(spec, 'a', CHANNEL_SPEC_MAX);
    spec[CHANNEL_SPEC_MAX - 2] = '\0'; /* two bytes are for the quotes of the JSON string */
    assert_int_equal(channel_check_spec("job.json", spec, &err), 0);
    *out = (ChannelMessage){.type = CHANNEL_ASSIGN,
                            .generation = INT64_MIN,
                            .step = INT64_MIN,
                            .assign = {.rank = INT32_MIN,
                                       .world_size = INT32_MIN,
                                       .spec = spec,
                                       .resume_hash = {UINT64_MAX, UINT64_MAX},
                                       .find = INT32_MIN,
                                       .resume_step = INT64_MIN,
                                       .startup_usec = INT64_MAX,
                                       .alive_usec = INT64_MAX}};
#define FILL(member, c) memset(out->assign.member, c, sizeof(out->assign.member) - 1)
    FILL(job, 'j');
    FILL(node, 'n');
    FILL(resume_uri, '"'); /* two bytes in JSON */
    FILL(takes_over, 'f');
    FILL(sources, 'f');
    FILL(submission, 'f');
    FILL(gpu, '0');
    FILL(gpus, 'G');
    FILL(bind_address, ':');
    FILL(secret, 'f');
    FILL(numerics, 'n');
    assert_int_equal(channel_encode(out, &packet, &n, &err), 0);
    free(packet);

    spec[CHANNEL_SPEC_MAX - 3] = '"';
    assert_int_equal(channel_check_spec("job.json", spec, &err), -EMSGSIZE);
    assert_string_equal(
        err.text,
        "job.json: the file takes 53249 bytes as a JSON string, and ranks receive at most 53248");
    assert_int_equal(channel_check_spec("job.json", "\xff", &err), -EINVAL);
    channel_message_clear(out);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_message_survives, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(a_loss_that_is_not_a_number_travels, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(a_text_that_was_cut_travels, open_pair, close_pair),
        cmocka_unit_test(an_older_step_is_read),
        cmocka_unit_test(an_older_assign_is_read),
        cmocka_unit_test_setup_teardown(bad_packets_are_named, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(silence_and_end_differ, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(last_words_survive_unread_messages, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(too_long_is_refused_before_sending, open_pair, close_pair),
        cmocka_unit_test(a_spec_that_passes_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
