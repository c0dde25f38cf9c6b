/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - the verbs of sdtrainer, except `sample` (sample/sample.h).
 *
 * Ownership: none. Threads: the main thread.
 * Units:     as each verb's --help says.
 * Errors:    exit codes (exit-code.h); the text goes to standard error and, under a daemon, into
 *            the channel.
 */
#pragma once

/* `run`: one rank under a daemon (SDTRAIN_CHANNEL), or `run --job F`: the whole job in this
 * process, on one rank. */
int verb_run(int argc, char **argv);
/* `plan --job F`: prints how much memory a rank needs. */
int verb_plan(int argc, char **argv);
/* `order --job F --step N`: prints which samples a step trains. */
int verb_order(int argc, char **argv);
int verb_doctor(int argc, char **argv);
