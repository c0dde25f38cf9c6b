/* SPDX-License-Identifier: Apache-2.0 */
/* decision-text.c - see decision-text.h. controller/journal/decision-log.c writes the lines that are parsed here. */
#include "ctl/decision-text.h"

#include "cluster/records.h"

#include <stdio.h>
#include <string.h>

/* Returns the length of the line without the fields at its end, such as " JOB=a GENERATION=3". */
static size_t words_end(const char *line)
{
    size_t end = strlen(line);
    for (;;) {
        size_t at = end;
        while (at > 0 && line[at - 1] != ' ')
            at--;
        size_t n = strspn(line + at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        if (at == 0 || n == 0 || at + n >= end || line[at + n] != '=')
            return end;
        end = at - 1;
    }
}

static void field_of(const char *fields, const char *name, char *ret, size_t size)
{
    const char *at = strstr(fields, name);
    *ret = '\0';
    if (at)
        (void)snprintf(ret, size, "%.*s", (int)strcspn(at + strlen(name), " "), at + strlen(name));
}

/* Returns the phase with which the words begin, as in "running, go: starts", or -1. */
static int phase_of(const char *words)
{
    for (int i = 0; i < PHASE_COUNT; i++) {
        size_t n = strlen(job_phase_name((JobPhase)i));
        if (strncmp(words, job_phase_name((JobPhase)i), n) == 0 &&
            (!words[n] || strchr(",:", words[n])))
            return i;
    }
    return -1;
}

static void write_phase(const char *words, const char *job, int phase, char *ret)
{
    static const char *const does[PHASE_COUNT] = {"waits",
                                                  "starts",
                                                  "runs",
                                                  "recovers",
                                                  "finishes its step, saves and is placed anew",
                                                  "stops",
                                                  "is stopped",
                                                  "has succeeded",
                                                  "has failed"};
    const char *reason = strchr(words, ':');
    const bool go = strncmp(words + strlen(job_phase_name((JobPhase)phase)), ", go", 4) == 0;
    const bool begins = go && (phase == PHASE_STARTING || phase == PHASE_RECOVERING);
    (void)snprintf(ret, SENTENCE_BYTES, "job %s %s%s", job,
                   begins ? "begins to train" : does[phase], reason ? reason : "");
}

const char *decision_text(const char *line, char ret[SENTENCE_BYTES])
{
    char words[SENTENCE_BYTES], job[RECORD_JOB_MAX + 1], node[NODE_NAME_MAX + 1];
    long long generation;
    int said = 0;
    if (!line)
        line = "?";
    const size_t end = words_end(line);
    (void)snprintf(words, sizeof(words), "%.*s", (int)end, line);
    field_of(line + end, " JOB=", job, sizeof(job));
    field_of(line + end, " NODE=", node, sizeof(node));
    const int phase = *job ? phase_of(words) : -1;
    const char *colon = strstr(words, ": ");
    if (phase >= 0)
        write_phase(words, job, phase, ret);
    else if (*job && sscanf(words, "world %lld of %n", &generation, &said) == 1 && said > 0)
        (void)snprintf(ret, SENTENCE_BYTES, "job %s gets %.*s (generation %lld)%s", job,
                       (int)strcspn(words + said, ":"), words + said, generation,
                       colon ? colon : "");
    else if (strncmp(words, "incident ", 9) == 0 && colon)
        (void)snprintf(ret, SENTENCE_BYTES, "%.*s opens%s", (int)(colon - words), words, colon);
    else if (strcmp(words, "uncordoned") == 0)
        (void)snprintf(ret, SENTENCE_BYTES, "node %s may have ranks again", node);
    else
        (void)snprintf(ret, SENTENCE_BYTES, "%s%s%s%s", *job ? "job " : "", job, *job ? ": " : "",
                       words);
    return ret;
}
