/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-context.c - named clusters in files: which context is used, what overrides it, and which files are
 * refused. */
#include "base/test/testing.h"

#include "ctl/test/testing-ctl.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const variables[] = {
    "SDTRAIN_ETCD",      "SDTRAIN_ETCD_CA",   "SDTRAIN_CLUSTER",           "SDTRAIN_CONTEXT",
    "SDTRAIN_ETCD_USER", "SDTRAIN_ETCD_CERT", "SDTRAIN_ETCD_PASSWORD_FILE"};

static void forget_variables(void)
{
    for (size_t i = 0; i < ELEMENTSOF(variables); i++)
        assert_int_equal(unsetenv(variables[i]), 0);
}

/* Sets up the files home/sdtrain/sdctl.json for the user and system.json for the machine, and node n1 in cluster
 * lab. */
static int setup(void **state)
{
    char path[200];
    const int r = ctl_setup(state);
    CtlLab *lab = *state;
    (void)snprintf(path, sizeof(path), "%s/home", lab->folder);
    assert_int_equal(setenv("XDG_CONFIG_HOME", path, 1), 0);
    (void)snprintf(path, sizeof(path), "%s/system.json", lab->folder);
    assert_int_equal(setenv("SDTRAIN_CONTEXTS", path, 1), 0);
    NodeRecord node = {.machine_id = "1", .incarnation = 1, .n_slots = 1};
    CTL_PUT(lab, KEY_NODES, "n1", node_record, node);
    forget_variables();
    return r;
}

static void write_file(CtlLab *lab, const char *name, const char *format)
{
    char *text = NULL, path[200];
    assert_true(asprintf(&text, "%s", format) > 0);
    for (char *p; (p = strstr(text, "$ETCD"));) { /* replaced by the address of the real etcd */
        char *next = NULL;
        assert_true(asprintf(&next, "%.*s%s%s", (int)(p - text), text,
                             testing_etcd_endpoints(lab->server), p + 5) > 0);
        free(text);
        text = next;
    }
    ctl_write(lab, name, text);
    free(text);
    (void)snprintf(path, sizeof(path), "%s/%s", lab->folder, name);
    assert_int_equal(chmod(path, 0644), 0);
}

static void set_mode(const CtlLab *lab, const char *name, mode_t mode)
{
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/%s", lab->folder, name);
    assert_int_equal(chmod(path, mode), 0);
}

/* Tells whether sdctl finds node n1, which shows that it uses the right etcd and cluster. */
static bool finds_node(CtlLab *lab, const char *options)
{
    int code = ctl_run(lab, "node status n1 %s", options);
    return code == 0;
}

static void a_context_is_chosen(void **state)
{
    CtlLab *lab = *state;
    assert_int_equal(ctl_run(lab, "node list"), 5);
    assert_contains(lab->err, "no etcd is named");
    write_file(lab, "system.json",
               "{\"contexts\": {\"lab\": {\"etcd\": \"$ETCD\", \"cluster\": \"lab\"},"
               " \"other\": {\"etcd\": \"$ETCD\"}}}");
    assert_int_equal(ctl_run(lab, "node list"), 5); /* no context is chosen */
    assert_true(finds_node(lab, "--context lab"));
    assert_false(finds_node(lab, "--context other"));
    assert_true(finds_node(lab, "--context other --cluster lab"));
    assert_int_equal(setenv("SDTRAIN_CONTEXT", "lab", 1), 0);
    assert_true(finds_node(lab, ""));
    assert_false(finds_node(lab, "--context other"));
    assert_int_equal(unsetenv("SDTRAIN_CONTEXT"), 0);

    assert_int_equal(ctl_run(lab, "context use lab"), 0);
    assert_true(finds_node(lab, ""));
    assert_int_equal(ctl_run(lab, "context list"), 0);
    assert_contains(lab->out, "* lab ");
    assert_contains(lab->out, "\n  other ");
    assert_contains(lab->out, "home/sdtrain/sdctl.json says so\n");
    assert_int_equal(ctl_run(lab, "context show -o json"), 0);
    json_t *j = ctl_json(lab);
    assert_string_equal(json_string_value(json_object_get(j, "cluster")), "lab");
    assert_true(json_is_true(json_object_get(j, "in_use")));
    assert_true(json_is_null(json_object_get(j, "etcd_user")));
    json_decref(j);
    assert_int_equal(ctl_run(lab, "context use nobody"), 3);
    assert_contains(lab->err, "there is no context \"nobody\"; there is lab, other (");
    assert_int_equal(ctl_run(lab, "node list --context nobody"), 3);
    assert_contains(lab->err, "--context: there is no context \"nobody\"");
    /* the user's context hides the machine's context of the same name */
    write_file(lab, "home/sdtrain/sdctl.json",
               "{\"context\": \"lab\", \"contexts\": {\"lab\": {\"etcd\": \"$ETCD\"}}}");
    assert_false(finds_node(lab, ""));
}

static void options_and_environment_win(void **state)
{
    CtlLab *lab = *state;
    write_file(
        lab, "home/sdtrain/sdctl.json",
        "{\"context\": \"far\", \"contexts\": {"
        "\"far\": {\"etcd\": \"127.0.0.1:1\", \"cluster\": \"far\", \"etcd_ca\": \"ca.pem\"},"
        "\"lab\": {\"etcd\": \"$ETCD\", \"cluster\": \"lab\"}}}");
    write_file(lab, "home/sdtrain/ca.pem", "none");
    const char *etcd = testing_etcd_endpoints(lab->server);
    char options[200];
    (void)snprintf(options, sizeof(options), "--etcd %s --cluster lab", etcd);
    assert_true(finds_node(lab, options)); /* the context's etcd_ca is not used, either */

    assert_int_equal(setenv("SDTRAIN_ETCD", etcd, 1), 0);
    /* The cluster is "default", not the cluster of the context. */
    assert_int_equal(ctl_run(lab, "node status n1"), 3);
    assert_int_equal(ctl_run(lab, "context list"), 0);
    assert_contains(lab->out, "none is in use: SDTRAIN_ETCD names an etcd");
    assert_int_equal(setenv("SDTRAIN_CLUSTER", "lab", 1), 0);
    assert_true(finds_node(lab, ""));

    /* --context overrides the environment: variables for another etcd are not used */
    assert_int_equal(setenv("SDTRAIN_ETCD", "127.0.0.1:1", 1), 0);
    assert_int_equal(setenv("SDTRAIN_CLUSTER", "far", 1), 0);
    assert_int_equal(setenv("SDTRAIN_ETCD_CA", "/nowhere/ca.pem", 1), 0);
    assert_true(finds_node(lab, "--context lab"));
    assert_int_equal(ctl_run(lab, "node list --context lab --etcd %s", etcd), 2);
    assert_contains(lab->err, "--context and --etcd both name an etcd");
    forget_variables();

    /* a context that is not from --context: variables of the environment override its values */
    assert_int_equal(setenv("SDTRAIN_CONTEXT", "lab", 1), 0);
    assert_int_equal(setenv("SDTRAIN_CLUSTER", "empty", 1), 0);
    assert_int_equal(ctl_run(lab, "node status n1"), 3);
    assert_int_equal(unsetenv("SDTRAIN_CLUSTER"), 0);
    assert_int_equal(setenv("SDTRAIN_ETCD_CA", "/nowhere/ca.pem", 1), 0);
    assert_int_not_equal(ctl_run(lab, "node list"), 0);
    assert_contains(lab->err, "/nowhere/ca.pem");
}

static void files_beside_the_contexts_are_found(void **state)
{
    CtlLab *lab = *state;
    char here[200];
    write_file(lab, "system.json",
               "{\"contexts\": {\"lab\": {\"etcd\": \"$ETCD\", \"cluster\": \"lab\","
               " \"etcd_user\": \"u\", \"etcd_password_file\": \"word\"}}}");
    write_file(lab, "word", "pass\n");
    set_mode(lab, "word", 0600);
    assert_true(finds_node(lab, "--context lab"));
    /* a relative path without a folder is in the working folder */
    assert_non_null(getcwd(here, sizeof(here)));
    assert_int_equal(chdir(lab->folder), 0);
    assert_int_equal(setenv("SDTRAIN_CONTEXTS", "system.json", 1), 0);
    const bool found = finds_node(lab, "--context lab");
    assert_int_equal(chdir(here), 0);
    assert_true(found);
}

static void bad_files_are_refused_exactly(void **state)
{
    CtlLab *lab = *state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"contexts\": {\"a\": {\"etcd\": \"h:1\", \"etdc_ca\": \"x\"}}}",
         "/sdctl.json: contexts.a.etdc_ca: "},
        {"{\"context\": \"a\", \"Contexts\": {}}", "/sdctl.json: Contexts: "},
        {"{\"contexts\": {\"a\": {\"cluster\": \"b\"}}}", "contexts.a.etcd: missing"},
        {"{\"contexts\": {\"a\": {\"etcd\": 7}}}", "contexts.a.etcd: "},
        {"{\"contexts\": {\"a\": {\"etcd\": \"h:1\", \"cluster\": \"B/c\"}}}",
         "contexts.a.cluster: \"B/c\" is not a name"},
        {"{\"contexts\": {\"A b\": {\"etcd\": \"h:1\"}}}", "contexts.A b: a context's name has"},
        {"{\"contexts\": {\"a\": {\"etcd\": \"h:1\", \"etcd_cert\": \"c.pem\"}}}",
         "contexts.a.etcd_key: missing, though etcd_cert is \""},
        {"{\"contexts\": {\"a\": {\"etcd\": \"h:1\", \"etcd_user\": \"u\"}}}",
         "contexts.a.etcd_password_file: missing, though etcd_user is \"u\""},
        {"{\"contexts\": [", "/sdctl.json: "},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        write_file(lab, "home/sdtrain/sdctl.json", cases[i].text);
        assert_int_equal(ctl_run(lab, "node list --context a"), 1);
        assert_contains(lab->err, cases[i].says);
        assert_int_equal(ctl_run(lab, "context list"), 1);
        assert_contains(lab->err, cases[i].says);
    }
    assert_int_equal(setenv("SDTRAIN_ETCD", testing_etcd_endpoints(lab->server), 1), 0);
    /* The context file is not needed, so it is not read. */
    assert_int_equal(ctl_run(lab, "node list --cluster lab"), 0);
}

static void wrong_rights_are_refused(void **state)
{
    CtlLab *lab = *state;
    write_file(lab, "home/sdtrain/sdctl.json",
               "{\"contexts\": {\"lab\": {\"etcd\": \"$ETCD\", \"cluster\": \"lab\"}, \"secret\": "
               "{\"etcd\": \"$ETCD\", \"etcd_user\": \"u\", \"etcd_password_file\": \"word\"}}}");
    for (int i = 0; i < 2; i++) {
        set_mode(lab, "home/sdtrain/sdctl.json", i ? 0664 : 0646);
        assert_int_equal(ctl_run(lab, "node list --context lab"), 1);
        assert_contains(lab->err, "/sdctl.json: wrong rights: others may write to it (mode 06");
        assert_contains(lab->err, "; chmod go-w ");
    }
    set_mode(lab, "home/sdtrain/sdctl.json", 0644);
    for (int i = 0; i < 2; i++) { /* a user who can write to the folder could replace the file */
        set_mode(lab, "home/sdtrain", i ? 0775 : 0757);
        assert_int_equal(ctl_run(lab, "node list --context lab"), 1);
        assert_contains(lab->err,
                        "/sdctl.json: wrong rights: others may write to its folder (mode ");
        assert_contains(lab->err, "; chmod go-w ");
    }
    set_mode(lab, "home/sdtrain", 01777); /* sticky bit: users cannot replace other users' files */
    assert_int_equal(ctl_run(lab, "node list --context lab"), 0);
    set_mode(lab, "home/sdtrain", 0755);
    assert_int_equal(ctl_run(lab, "node list --context secret"), 1);
    assert_contains(lab->err, "contexts.secret.etcd_password_file: ");
    assert_contains(lab->err, "home/sdtrain/word: No such file");
    write_file(lab, "home/sdtrain/word", "pass\n");
    assert_int_equal(ctl_run(lab, "node list --context secret"), 1);
    assert_contains(lab->err, "/word: wrong rights: everybody may read it (mode 0644); chmod ");
    set_mode(lab, "home/sdtrain/word", 0640);
    assert_int_equal(ctl_run(lab, "node list --context secret"),
                     0); /* this etcd has no authentication */
    assert_true(finds_node(lab, "--context lab"));
    char file[200], link[200];
    (void)snprintf(link, sizeof(link), "%s/home/sdtrain/sdctl.json", lab->folder);
    (void)snprintf(file, sizeof(file), "%s/dotfile", lab->folder);
    assert_true(rename(link, file) == 0 && symlink(file, link) == 0);
    assert_int_equal(ctl_run(lab, "context use lab"), 0); /* the verb keeps the other contexts */
    struct stat st;
    assert_true(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    assert_true(stat(file, &st) == 0 && (st.st_mode & 0022) == 0);
    assert_int_equal(ctl_run(lab, "context show secret"), 0);
    assert_contains(lab->out, "etcd_user            u\n");
    set_mode(lab, ".", 0770); /* the folder of the link's target */
    assert_int_equal(ctl_run(lab, "node list --context lab"), 1);
    assert_contains(lab->err, "/dotfile: wrong rights: others may write to its folder (mode 0770)");
    set_mode(lab, ".", 0700);
    assert_true(unlink(link) == 0 && mkfifo(link, 0600) == 0);
    assert_int_equal(ctl_run(lab, "node list --context lab"), 1);
    assert_contains(lab->err, "/sdctl.json: it is not a file\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_context_is_chosen, setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(options_and_environment_win, setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(files_beside_the_contexts_are_found, setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(bad_files_are_refused_exactly, setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(wrong_rights_are_refused, setup, ctl_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
