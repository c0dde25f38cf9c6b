/* SPDX-License-Identifier: Apache-2.0 */
/* test-probe-asks.c - requests for a check that arrive while a round is under way: how many are kept, and which. */
#include "base/test/testing.h"
#include "daemon/health/probes.h"

#include <stdlib.h>
#include <string.h>

static DaemonConfig config = {.node = "n1"};

static void ask(Probes *p, const char *key, const char *text, int64_t revision)
{
    EtcdKeyValue kv = {.key = (char *)(uintptr_t)key, /* read only */
                       .value = (char *)(uintptr_t)text,
                       .n_value = strlen(text),
                       .mod_revision = revision};
    probes_request(p, &kv, false);
}

/* The requests that are kept wait for the end of the round. A further request does not replace any of them. */
static void who_has_asked_is_not_forgotten_for_others(void **state)
{
    (void)state;
    Probes p = {.needs = {.config = &config}, .n_waited = 1, .is_ready = true};
    char key[KEY_MAX + 1];
    for (int round = 0; round < 2; round++) /* in the second pass all keys are known */
        for (int i = 0; i < PROBE_ASKS_MAX; i++) {
            (void)snprintf(key, sizeof(key), "/requests/%d", i);
            ask(&p, key, round ? "later" : "first", 100 + i);
            assert_int_equal(p.n_asks, round ? PROBE_ASKS_MAX : i + 1);
        }
    ask(&p, "/requests/one-more", "x", 200);
    assert_int_equal(p.n_asks, PROBE_ASKS_MAX);
    for (int i = 0; i < PROBE_ASKS_MAX; i++) {
        (void)snprintf(key, sizeof(key), "/requests/%d", i);
        assert_string_equal(p.asks[i].key, key);
        assert_string_equal(p.asks[i].text, "first");
        assert_int_equal(p.asks[i].revision, 100 + i);
        free(p.asks[i].text);
    }
}

static void a_key_is_kept_whole_or_not_at_all(void **state)
{
    (void)state;
    Probes p = {.needs = {.config = &config}, .n_waited = 1, .is_ready = true};
    char key[KEY_MAX + 1];
    memset(key, 'x', sizeof(key));
    key[KEY_MAX] = '\0';
    ask(&p, key, "x", 1);
    assert_int_equal(p.n_asks, 0);
    key[KEY_MAX - 1] = '\0';
    ask(&p, key, "x", 1);
    assert_int_equal(p.n_asks, 1);
    assert_string_equal(p.asks[0].key, key);
    free(p.asks[0].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_has_asked_is_not_forgotten_for_others),
        cmocka_unit_test(a_key_is_kept_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
