/* SPDX-License-Identifier: Apache-2.0 */
/* job-exec.c - see job-exec.h. */
#include "protocol/job-exec.h"

#include "base/memory.h"
#include "protocol/exec-variables.h"

#include <ctype.h>
#include <regex.h>
#include <signal.h>
#include <string.h>

/* The codes by which exit_codes names a meaning. */
static const ExitCode meanings[] = {
    EXIT_RETRY,      EXIT_NEVER_RETRY,  EXIT_DEVICE_FAULT,
    EXIT_PEER_LOST,  EXIT_DATA_CORRUPT, EXIT_STORE_UNREACHABLE,
    EXIT_NON_FINITE, EXIT_NUMERICS,     EXIT_NOT_OWNER,
};

static bool is_trainers(int code)
{
    for (size_t i = 0; i < ELEMENTSOF(meanings); i++)
        if (code == (int)meanings[i])
            return true;
    return code == EXIT_DONE;
}

static void check_variables(JsonReader *r, const char *key, const char *text, bool for_node)
{
    char why[160];
    const char *wrong = exec_variables_check(text, for_node, why, sizeof(why));
    if (wrong)
        json_refuse(r, key, "%s", wrong);
}

/* Reads a list of texts in which variables are filled in. Returns NULL if the key is missing. */
static char **take_list(JsonReader *r, const char *key, JsonNeed need, size_t max, bool for_node)
{
    char **list = json_get_texts(r, key, need, max);
    for (char **one = list; one && *one; one++)
        check_variables(r, key, *one, for_node);
    return list;
}

static bool is_name(const char *name)
{
    if (!*name || isdigit((unsigned char)*name))
        return false;
    for (; *name; name++)
        if (*name != '_' && !(isascii(*name) && isalnum((unsigned char)*name)))
            return false;
    return true;
}

static void check_name(JsonReader *r, const char *key, const char *name)
{
    if (!is_name(name))
        json_refuse(r, key, "\"%.40s\" is not the name of a variable", name);
    else if (exec_variable_is_ours(name))
        json_refuse(r, key, "%s is set by sdtrain", name);
}

static char **take_environment(JsonReader *r)
{
    json_t *object = NULL, *value;
    const char *name;
    size_t n = 0;
    if (!json_get_any(r, "env", JSON_OPTIONAL, &object))
        return NULL;
    if (!json_is_object(object) || json_object_size(object) > EXEC_WORDS_MAX) {
        json_refuse(r, "env", "expected an object of at most %d names and texts", EXEC_WORDS_MAX);
        return NULL;
    }
    char **list = memory_zeroed(json_object_size(object) + 1, sizeof(*list));
    json_object_foreach (object, name, value) {
        const char *text = json_string_value(value);
        check_name(r, "env", name);
        if (!text)
            json_refuse(r, "env", "%.40s is not a text", name);
        else
            check_variables(r, "env", text, true);
        list[n++] = memory_format("%s=%s", name, text ? text : "");
    }
    return list;
}

static char **take_secrets(JsonReader *r)
{
    char **list = take_list(r, "secrets", JSON_OPTIONAL, EXEC_SECRETS_MAX, true);
    for (char **one = list; one && *one; one++)
        check_name(r, "secrets", *one);
    return list;
}

static void take_device(JsonReader *r, JobExec *ret)
{
    static const char *const devices[] = {"cpu", "cuda"};
    int device = JOB_DEVICE_CPU;
    json_get_choice(r, "device", JSON_OPTIONAL, devices, ELEMENTSOF(devices), &device);
    json_get_bool(r, "own_gpu", JSON_OPTIONAL, &ret->own_gpu);
    ret->device = (JobDevice)device;
    if (r->r == 0 && ret->own_gpu && ret->device != JOB_DEVICE_CUDA)
        json_refuse(r, "own_gpu", "only a program on \"cuda\" (exec.device) has GPUs");
}

static int take_seconds(JsonReader *r, const char *key, int fallback, int max)
{
    int64_t sec = fallback;
    json_get_int(r, key, JSON_OPTIONAL, 0, max, &sec);
    return (int)sec;
}

static void take_signal(JsonReader *r, JobExec *ret)
{
    static const char *const names[] = {"SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"};
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    int at = 0;
    json_get_choice(r, "leave_signal", JSON_OPTIONAL, names, ELEMENTSOF(names), &at);
    ret->leave_signal = numbers[at];
}

/* Refuses what may take for ever to match, or all memory to compile: back-references and counted repetitions. */
static void check_pattern(JsonReader *r, const char *key, const char *text)
{
    if (strlen(text) > EXEC_PATTERN_MAX)
        json_refuse(r, key, "%.40s... is longer than %d bytes", text, EXEC_PATTERN_MAX);
    for (const char *at = text; *at; at += at[0] == '\\' && at[1] ? 2 : 1) {
        if (at[0] == '\\' && isdigit((unsigned char)at[1]))
            json_refuse(r, key, "\"%.2s\" is a back-reference, which is not allowed", at);
        if (at[0] == '{')
            json_refuse(r, key, "\"%.10s\" is a counted repetition, which is not allowed", at);
    }
}

/* Reads a pattern. */
static char *take_pattern(JsonReader *r, const char *key)
{
    const char *text = NULL;
    regex_t pattern;
    if (!json_get_string(r, key, JSON_OPTIONAL, &text))
        return NULL;
    check_pattern(r, key, text);
    if (r->r < 0)
        return NULL;
    int e = regcomp(&pattern, text, REG_EXTENDED);
    if (e != 0) {
        char why[128];
        (void)regerror(e, &pattern, why, sizeof(why));
        json_refuse(r, key, "%s: %s", text, why);
        return NULL;
    }
    if (pattern.re_nsub != 1)
        json_refuse(r, key, "%s has %zu groups (...); the one group is the number", text,
                    pattern.re_nsub);
    regfree(&pattern);
    return memory_text(text);
}

static void take_progress(JsonReader *r, JobExec *ret)
{
    JsonReader p = json_get_object(r, "progress", JSON_OPTIONAL);
    ret->step_pattern = take_pattern(&p, "step");
    ret->loss_pattern = take_pattern(&p, "loss");
    if (p.r == 0 && ret->loss_pattern && !ret->step_pattern)
        json_refuse(&p, "loss", "needs progress.step, too");
    json_close(&p);
}

static int find_meaning(const char *name)
{
    for (size_t i = 0; name && i < ELEMENTSOF(meanings); i++)
        if (strcmp(exit_code_class(meanings[i]), name) == 0)
            return (int)i;
    return -1;
}

static void take_codes(JsonReader *r, JobExec *ret)
{
    json_t *object = NULL, *value;
    const char *key;
    if (!json_get_any(r, "exit_codes", JSON_OPTIONAL, &object))
        return;
    if (!json_is_object(object) || json_object_size(object) > EXEC_CODES_MAX) {
        json_refuse(r, "exit_codes", "expected an object of at most %d codes", EXEC_CODES_MAX);
        return;
    }
    json_object_foreach (object, key, value) {
        char *end;
        const long code = strtol(key, &end, 10);
        const int meaning = find_meaning(json_string_value(value));
        if (!isdigit((unsigned char)*key) || *end || code < 1 || code > 255)
            json_refuse(r, "exit_codes", "\"%.40s\" is not an exit code, 1 to 255", key);
        else if (is_trainers((int)code))
            json_refuse(r, "exit_codes", "%ld means \"%s\" already", code,
                        exit_code_class((int)code));
        else if (meaning < 0)
            json_refuse(r, "exit_codes",
                        "%ld: expected one of retry, never-retry, device-fault, peer-lost, "
                        "data-corrupt, store-unreachable, non-finite, numerics, not-owner",
                        code);
        else
            ret->codes[ret->n_codes++] = (ExecCode){(int)code, meanings[meaning]};
    }
}

void job_exec_parse(JsonReader *root, JobExec *ret)
{
    const char *dir = NULL;
    JsonReader r = json_get_object(root, "exec", JSON_REQUIRED);
    ret->command = take_list(&r, "command", JSON_REQUIRED, EXEC_WORDS_MAX, false);
    if (ret->command && r.r == 0 && !*ret->command[0])
        json_refuse(&r, "command", "the program's name is empty");
    ret->setup = take_list(&r, "setup", JSON_OPTIONAL, EXEC_WORDS_MAX, true);
    if (json_get_string(&r, "dir", JSON_REQUIRED, &dir) && *dir != '/')
        json_refuse(&r, "dir", "\"%.40s\" is not an absolute path", dir);
    ret->dir = dir ? memory_text(dir) : NULL;
    ret->env = take_environment(&r);
    take_device(&r, ret);
    json_get_bool(&r, "notify", JSON_OPTIONAL, &ret->notify);
    json_get_int(&r, "steps", JSON_OPTIONAL, 1, INT64_C(1) << 40, &ret->steps);
    ret->leave_sec = take_seconds(&r, "leave_s", EXEC_LEAVE_SEC, 86400);
    take_signal(&r, ret);
    ret->silence_sec = take_seconds(&r, "silence_s", 0, 1000000);
    ret->fence_sec = take_seconds(&r, "fence_s", EXEC_NO_FENCE, 86400);
    take_progress(&r, ret);
    take_codes(&r, ret);
    ret->secrets = take_secrets(&r);
    json_close(&r);
}

void job_exec_clear(JobExec *exec)
{
    memory_free_texts(exec->command);
    memory_free_texts(exec->setup);
    memory_free_texts(exec->env);
    memory_free_texts(exec->secrets);
    free(exec->dir);
    free(exec->step_pattern);
    free(exec->loss_pattern);
    *exec = (JobExec){0};
}

bool job_exec_find_code(const JobExec *exec, int code, ExitCode *ret)
{
    *ret = (ExitCode)code;
    if (is_trainers(code))
        return true;
    for (size_t i = 0; i < exec->n_codes; i++)
        if (exec->codes[i].code == code) {
            *ret = exec->codes[i].means;
            return true;
        }
    return false;
}
