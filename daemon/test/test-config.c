/* SPDX-License-Identifier: Apache-2.0 */
/* test-config.c - the settings: the file, the command line over it, and refusals that name the bad key. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "daemon/config/config.h"

#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[] = "/tmp/sdtrain-config-XXXXXX";
static char path[64];

#define GOOD                                                                                       \
    "\"node\": \"n1\", \"etcd\": \"127.0.0.1:2379\", \"address\": \"10.0.0.1\", "                  \
    "\"trainer\": \"/bin/true\", \"machine_id\": \"0123456789abcdef0123456789abcdef\""

/* Loads the settings. text: the inside of the file's object; arguments end with NULL. */
static int load(const char *text, char *const arguments[], DaemonConfig *ret, Error *err)
{
    _cleanup_free_ char *whole = NULL;
    assert_true(asprintf(&whole, "{%s}", text) > 0);
    assert_int_equal(file_write(path, whole, strlen(whole), 0, NULL), 0);
    char *argv[16] = {(char[]){"sdtraind"}, (char[]){"--config"}, path};
    int argc = 3;
    while (arguments && arguments[argc - 3] && argc < 15) {
        argv[argc] = arguments[argc - 3];
        argc++;
    }
    _cleanup_(settings_call_clear) SettingsCall call = {0};
    int r = config_parse_arguments(argc, argv, &call, err);
    return r < 0 ? r : config_load(&call, ret, err);
}

static void expect_refusal(const char *text, char *const arguments[], const char *wanted)
{
    _cleanup_(config_clear) DaemonConfig config = {0};
    Error err = ERROR_INIT;
    int r = load(text, arguments, &config, &err);
    if (r >= 0 || !strstr(err.text, wanted))
        fail_msg("%s: wanted \"%s\", got %d \"%s\"", text, wanted, r, err.text);
}

static void test_defaults_and_overrides(_unused_ void **state)
{
    _cleanup_(config_clear) DaemonConfig config = {0};
    Error err = ERROR_INIT;
    char *arguments[] = {(char[]){"--lease-sec=2"}, (char[]){"--label"}, NULL};
    arguments[1] = (char[]){"--labels=zone=a"};
    assert_int_equal(load(GOOD ", \"lease_sec\": 20, \"hang_floor_sec\": 1.5", arguments, &config,
                          &err),
                     0);
    assert_string_equal(config.cluster, "default");
    assert_int_equal(config.lease_sec, 2);
    assert_int_equal(config.fence_sec, 600);
    assert_int_equal(config.drain_sec, 60);
    assert_true(config.hang_floor_sec == 1.5);
    assert_string_equal(json_string_value(json_object_get(config.labels, "zone")), "a");
}

static void test_bad_settings_are_named(_unused_ void **state)
{
    expect_refusal(GOOD ", \"slotz\": 2", NULL, "config.json: slotz: unknown key");
    expect_refusal(GOOD ", \"slots\": 0", NULL, "config.json: slots: 0 is not in 1..64");
    expect_refusal(GOOD ", \"slots\": \"2\"", NULL, "slots: expected an integer, got \"2\"");
    expect_refusal(GOOD ", \"lease_sec\": 2.5", NULL, "lease_sec: expected an integer");
    expect_refusal(GOOD ", \"cgroup\": \"on\"", NULL, "cgroup: on is not one of auto, off");
    expect_refusal(GOOD ", \"cluster\": \"A/B\"", NULL, "cluster: \"A/B\" is not a name");
    expect_refusal(GOOD ", \"run_dir\": \"run\"", NULL, "run_dir: run is not an absolute path");
    expect_refusal(GOOD ", \"trainer_environment\": [\"A\"]", NULL,
                   "trainer_environment: element 0");
    expect_refusal(GOOD ", \"labels\": {\"price\": \"p4,p5\"}", NULL,
                   "labels: price: \"p4,p5\" is not a class");
    expect_refusal(GOOD ", \"labels\": {\"a\": 1}", NULL, "labels: the value of a");
    expect_refusal(GOOD ", \"paths_read\": [1]", NULL, "paths_read: element 0 is not a string");
    expect_refusal(GOOD ", \"paths_write\": \"/a\"", NULL, "paths_write: expected ");
    expect_refusal(GOOD ", \"etcd_cert\": \"/c\"", NULL, "etcd_key: missing, though etcd_cert");
    expect_refusal(GOOD ", \"metrics\": \"9465\"", NULL, "metrics: \"9465\" is not ADDRESS:PORT");
    expect_refusal(GOOD ", \"etcd_password_file\": \"/no/file\"", NULL, "etcd_password_file");
    expect_refusal("\"node\": \"n1\", \"etcd\": \"e:1\", \"trainer\": \"/bin/true\"", NULL,
                   "address: missing");
    expect_refusal("\"node\": \"n1\", \"address\": \"a\", \"trainer\": \"/bin/true\"", NULL,
                   "etcd: missing");
    expect_refusal(GOOD ", \"node\": \"n2\"", NULL, "duplicate");
    expect_refusal(GOOD ", ", NULL, "config.json: line 1");
}

static void test_the_user_of_programs(_unused_ void **state)
{
    _cleanup_(config_clear) DaemonConfig config = {0}, none = {0};
    Error err = ERROR_INIT;
    assert_int_equal(load(GOOD ", \"exec_user\": \"nobody\"", NULL, &config, &err), 0);
    assert_true(config.exec_uid != 0 && config.exec_uid != geteuid());
    assert_string_equal(config.exec_socket, "/run/sdtrain-exec.sock");
    assert_string_equal(config.exec_slice, "/sdtrain.slice/sdtrain-exec.slice");
    assert_int_equal(load(GOOD, NULL, &none, &err), 0);
    assert_string_equal(none.exec_user, "");
    expect_refusal(GOOD ", \"exec_user\": \"nobody-at-all\"", NULL,
                   "config.json: exec_user: nobody-at-all is not a user of this machine");
    expect_refusal(GOOD ", \"exec_user\": \"root\"", NULL,
                   "config.json: exec_user: programs of jobs do not run as root");
    expect_refusal(GOOD ", \"exec_user\": \"nobody\", \"exec_socket\": \"s\"", NULL,
                   "config.json: exec_socket: s is not an absolute path");
    expect_refusal(GOOD ", \"exec_user\": \"nobody\", \"exec_slice\": \"a.slice\"", NULL,
                   "config.json: exec_slice: a.slice is not an absolute path");
}

/* A program that runs as the user of sdtraind can read its keys. */
static void test_programs_do_not_run_as_the_daemon(_unused_ void **state)
{
    if (geteuid() != 0)
        skip();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (chmod(folder, 0777) < 0 || setuid(getpwnam("nobody")->pw_uid) < 0)
            _exit(2);
        (void)unlink(path);
        expect_refusal(GOOD ", \"exec_user\": \"nobody\"", NULL,
                       "config.json: exec_user: sdtraind itself runs as nobody");
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The endpoint for spot notices must be on this machine, so that a mistake in the settings sends no query to another
 * host. */
static void test_spot_endpoint_is_of_this_machine(_unused_ void **state)
{
    static const char *const good[] = {"http://169.254.169.254", "http://127.0.0.1:1338",
                                       "http://[fd00:ec2::254]", "http://[::1]:65535", ""};
    for (size_t i = 0; i < ELEMENTSOF(good); i++) {
        _cleanup_(config_clear) DaemonConfig config = {0};
        _cleanup_free_ char *text = NULL;
        Error err = ERROR_INIT;
        assert_true(asprintf(&text, GOOD ", \"spot_endpoint\": \"%s\"", good[i]) > 0);
        assert_int_equal(load(text, NULL, &config, &err), 0);
        assert_string_equal(config.spot_endpoint, good[i]);
    }
    static const char *const strange[] = {"https://169.254.169.254",
                                          "http://",
                                          "169.254.169.254",
                                          "http://10.0.0.1",
                                          "http://metadata",
                                          "http://169.254.169.254/",
                                          "http://169.254.169.254:",
                                          "http://127.0.0.1:0",
                                          "http://127.0.0.1:65536",
                                          "http://127.0.0.1:80x",
                                          "http://127.0.0.1@10.0.0.1",
                                          "http://[::2]",
                                          "http://[::1",
                                          "http://[::1]x",
                                          "http://127.0.0.1.example.com"};
    for (size_t i = 0; i < ELEMENTSOF(strange); i++) {
        _cleanup_free_ char *text = NULL, *wanted = NULL;
        assert_true(asprintf(&text, GOOD ", \"spot_endpoint\": \"%s\"", strange[i]) > 0);
        assert_true(
            asprintf(&wanted, "config.json: spot_endpoint: \"%s\" is not http://", strange[i]) > 0);
        expect_refusal(text, NULL, wanted);
    }
}

static void test_bad_arguments_are_named(_unused_ void **state)
{
    char *slots[] = {(char[]){"--slots=65"}, NULL}, *word[] = {(char[]){"--slots=two"}, NULL},
         *label[] = {(char[]){"--labels=zone"}, NULL}, *stray[] = {(char[]){"node7"}, NULL},
         *trainer[] = {(char[]){"--trainer=/no/program"}, NULL},
         *id[] = {(char[]){"--machine-id=XYZ"}, NULL};
    expect_refusal(GOOD, slots, "command line: slots: 65 is not in 1..64");
    expect_refusal(GOOD, word, "command line: slots: two is not a number");
    expect_refusal(GOOD, label, "command line: labels: zone is not KEY=VALUE");
    expect_refusal(GOOD, stray, "unexpected argument node7");
    expect_refusal(GOOD, trainer, "trainer: /no/program");
    expect_refusal(GOOD, id, "machine_id: \"XYZ\" is not 32");
}

static void test_rows_of_drivers_words(_unused_ void **state)
{
    _cleanup_(config_clear) DaemonConfig config = {0};
    Error err = ERROR_INIT;
    char *arguments[] = {(char[]){"--xid-actions=149 nonfatal=suspect"}, NULL},
         *wrong[] = {(char[]){"--xid-actions=fatal=note"}, NULL};
    assert_int_equal(load(GOOD ", \"xid_actions\": {\"63\": \"isolate-slot\"}", NULL, &config,
                          &err),
                     0);
    assert_string_equal(json_string_value(json_object_get(config.xid_actions, "63")),
                        "isolate-slot");
    config_clear(&config);
    assert_int_equal(load(GOOD, arguments, &config, &err), 0);
    assert_string_equal(json_string_value(json_object_get(config.xid_actions, "149 nonfatal")),
                        "suspect");
    expect_refusal(GOOD ", \"xid_actions\": {\"149 fatl\": \"note\"}", NULL,
                   "config.json: xid_actions: \"149 fatl\" is not a row");
    expect_refusal(GOOD ", \"xid_actions\": {\"149 fatal\": \"reset it\"}", NULL,
                   "config.json: xid_actions: \"149 fatal\": \"reset it\" is none of note, ");
    expect_refusal(GOOD, wrong, "xid_actions: \"fatal\" is not a row");
}

static void test_reload_takes_what_may_change(_unused_ void **state)
{
    _cleanup_(config_clear) DaemonConfig config = {0}, fresh = {0};
    Error err = ERROR_INIT;
    assert_int_equal(load(GOOD ", \"drain_sec\": 1, \"labels\": {\"a\": \"1\"}", NULL, &config,
                          &err),
                     0);
    assert_int_equal(load(GOOD ", \"drain_sec\": 2, \"lease_sec\": 3, \"labels\": {\"a\": \"2\"}, "
                               "\"xid_actions\": {\"45\": \"suspect\"}",
                          NULL, &fresh, &err),
                     0);
    config_reload(&config, &fresh);
    assert_int_equal(config.drain_sec, 2);
    assert_int_equal(config.lease_sec, 10);
    assert_string_equal(json_string_value(json_object_get(config.labels, "a")), "2");
    assert_string_equal(json_string_value(json_object_get(config.xid_actions, "45")), "suspect");
}

static int run_check(const char *text)
{
    const char *bin = getenv("SDTRAIN_BIN");
    assert_non_null(bin);
    assert_int_equal(file_write(path, text, strlen(text), 0, NULL), 0);
    char command[400];
    (void)snprintf(command, sizeof(command), "%s/sdtraind --check-config --config %s >%s/out 2>&1",
                   bin, path, folder);
    int status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_check_config_exits_with_the_answer(_unused_ void **state)
{
    char out[80];
    (void)snprintf(out, sizeof(out), "%s/out", folder);
    _cleanup_free_ char *text = NULL;
    assert_int_equal(run_check("{" GOOD "}"), 0);
    assert_int_equal(run_check("{" GOOD ", \"slotz\": 2}"), 2);
    assert_int_equal(file_read(out, 4096, &text, NULL, NULL), 0);
    assert_non_null(strstr(text, "slotz: unknown key"));
}

static int make_folder(_unused_ void **state)
{
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/config.json", folder);
    (void)unsetenv("SDTRAIN_ETCD");
    return 0;
}

static int remove_folder(_unused_ void **state) { return folder_remove(folder, NULL); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_and_overrides),
        cmocka_unit_test(test_bad_settings_are_named),
        cmocka_unit_test(test_the_user_of_programs),
        cmocka_unit_test(test_programs_do_not_run_as_the_daemon),
        cmocka_unit_test(test_spot_endpoint_is_of_this_machine),
        cmocka_unit_test(test_bad_arguments_are_named),
        cmocka_unit_test(test_rows_of_drivers_words),
        cmocka_unit_test(test_reload_takes_what_may_change),
        cmocka_unit_test(test_check_config_exits_with_the_answer),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
