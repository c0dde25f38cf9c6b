/* SPDX-License-Identifier: Apache-2.0 */
/* test-settings.c - reads settings from a file and the command line, which overrides the file; tests
 * what is refused. */
#include "base/file.h"
#include "base/json/json.h"
#include "base/json/settings.h"
#include "base/test/testing.h"

#include <string.h>

#define SETTINGS_STRUCT Config /* used by SETTING() */

typedef struct Config {
    int64_t n_nodes, n_bytes;
    double factor;
    char secret[48];
    json_t *labels, *environment;
} Config;

static const Setting table[] = {
    SETTING(WHOLE, n_nodes, 1, 9, ""),   SETTING(INTEGER, n_bytes, 0, 1e12, ""),
    SETTING(NUMBER, factor, 0.5, 2, ""), SETTING(FILE, secret, 0, 0, ""),
    SETTING(MAP, labels, 0, 2, ""),      SETTING(LIST, environment, 0, 3, ""),
};
static const Settings settings = {.table = table,
                                  .n = ELEMENTSOF(table),
                                  .refusal = "what?",
                                  .stray = {"a stray ", "!"}};

/* Loads the settings from the words of a command line. Returns the error's text, "" without an error. */
static const char *load(const char *words, Config *ret, Error *err)
{
    _cleanup_free_ char *text = strdup(words);
    char *argv[16] = {(char[]){"sample"}}, *rest = text, *word;
    int argc = 1;
    while ((word = strsep(&rest, " ")) && argc < 15)
        argv[argc++] = word;
    *ret = (Config){.factor = 1};
    *err = ERROR_INIT;
    SettingsCall call = {0};
    if (settings_parse_arguments(&settings, argc, argv, &call, err) == 0)
        /* If the call fails, *err holds the error. */
        (void)settings_load(&settings, call.file, call.overrides, ret, err);
    json_decref(call.overrides);
    return err->text;
}

static void the_command_line_wins_over_the_file(_unused_ void **state)
{
    char path[] = "/tmp/sdtrain-settings-XXXXXX", words[128];
    _cleanup_fd_ int fd = mkstemp(path);
    const char text[] = "{\"n_nodes\": 5, \"n_bytes\": 6}\r\n";
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
    (void)snprintf(words, sizeof(words), "--n-bytes=1e9 --labels a=b=c --labels d= --config %s",
                   path);
    Config c;
    Error err;
    assert_string_equal(load(words, &c, &err), "");
    assert_true(c.n_nodes == 5 && c.n_bytes == 1000000000 && c.factor == 1);
    assert_int_equal(json_object_size(c.labels), 2);
    assert_string_equal(json_string_value(json_object_get(c.labels, "a")), "b=c");
    json_decref(c.labels);

    char line[sizeof(text) - 2];
    assert_int_equal(settings_read_line(path, line, sizeof(line), &err), 0);
    assert_int_equal(strlen(line), sizeof(line) - 1);
    assert_int_equal(settings_read_line(path, line, sizeof(line) - 1, &err), -EINVAL);
    assert_int_equal(unlink(path), 0);
}

static void refusals_name_key_and_value(_unused_ void **state)
{
    static const char *const cases[][2] = {
        {"--n-nodes 2.5", "command line: n_nodes: 2.5 is not a whole number"},
        {"--n-nodes 10", "command line: n_nodes: 10 is not in 1..9"},
        {"--n-bytes 1e9x", "command line: n_bytes: 1e9x is not a number"},
        {"--n-bytes 0.5", "command line: n_bytes: expected an integer, got 0.5"},
        {"--factor inf", "command line: factor: inf is not a number"},
        {"--labels a=\xff", "command line: labels: a=\xff is not UTF-8"},
        {"--labels a=1 --labels b=2 --labels c=3",
         "command line: labels: expected an object of at most 2 strings"},
        {"--n-nodes 1 node7", "a stray node7!"},
        {"--nonsense", "what?"},
        {"--n-noeds 1", "what? (did you mean \"n-nodes\"?)"},
        {"-xy", "what?"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Config c;
        Error err;
        assert_string_equal(load(cases[i][0], &c, &err), cases[i][1]);
    }
}

static void a_credential_lies_in_the_services_folder(_unused_ void **state)
{
    char folder[] = "/tmp/sdtrain-secret-XXXXXX", file[48], word[64];
    Config c;
    Error err;
    (void)unsetenv("CREDENTIALS_DIRECTORY");
    assert_string_equal(load("--secret %d/key", &c, &err),
                        "command line: secret: %d/key: only a service has credentials; "
                        "CREDENTIALS_DIRECTORY is unset");
    assert_string_equal(load("--secret /a/%d/key", &c, &err), "");
    assert_string_equal(c.secret, "/a/%d/key");

    assert_non_null(mkdtemp(folder));
    (void)setenv("CREDENTIALS_DIRECTORY", folder, 1);
    (void)snprintf(file, sizeof(file), "%s/key", folder);
    const char *text = load("--secret %d/key", &c, &err);
    assert_non_null(strstr(text, "secret: %d/key: /tmp/sdtrain-secret-"));
    assert_non_null(strstr(text, "/key: No such file or directory"));
    assert_int_equal(file_write(file, "s", 1, 0, NULL), 0);
    assert_string_equal(load("--secret %d/key", &c, &err), "");
    assert_string_equal(c.secret, file);
    assert_non_null(strstr(load("--secret %d/a-name-that-does-not-fit-in", &c, &err), "longer"));
    assert_string_equal(load("--environment A=x%d/key --environment B=%d/key", &c, &err), "");
    assert_string_equal(json_string_value(json_array_get(c.environment, 0)), "A=x%d/key");
    (void)snprintf(word, sizeof(word), "B=%s", file);
    assert_string_equal(json_string_value(json_array_get(c.environment, 1)), word);
    json_decref(c.environment);
    text = load("--environment A=b --environment B=%d/other", &c, &err);
    assert_non_null(strstr(text, "environment: %d/other: /tmp/sdtrain-secret-"));
    assert_int_equal(folder_remove(folder, NULL), 0);
    (void)unsetenv("CREDENTIALS_DIRECTORY");
    assert_non_null(strstr(load("--environment B=%d/key", &c, &err), "only a service"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_command_line_wins_over_the_file),
        cmocka_unit_test(refusals_name_key_and_value),
        cmocka_unit_test(a_credential_lies_in_the_services_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
