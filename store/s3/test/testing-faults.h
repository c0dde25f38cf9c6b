/* SPDX-License-Identifier: Apache-2.0 */
/* testing-faults.h - the fault proxy (tests/s3/fault_proxy.py) in front of the S3 server of a test.
 *
 *     Faults *faults = faults_start(NULL);
 *     faults_do(faults, "{'do': 'add', 'rules': [{'fault': 'lose', 'match': {'method': 'PUT'}}]}");
 *     ... store_put() ...
 *     assert_int_equal(faults_count(faults, "{'method': 'PUT'}"), 2);
 *
 * The head comment of the proxy describes rules and commands; here ' may be used instead of ". The proxy ends with this
 * process, even after a crash.
 *
 * Ownership: faults_start() gives the caller a Faults; faults_stop() accepts NULL. The text that
 *            faults_do() returns is valid until the next call.
 * Units:     as for the proxy.
 * Errors:    if the proxy refuses a command, or the setup fails, the process ends with an error message.
 * Threads:   one; the proxy is another process.
 */
#pragma once

#include "base/cleanup.h"
#include "base/macro.h"

#include <stddef.h>

typedef struct Faults Faults;

/* Starts the proxy in front of AWS_ENDPOINT_URL, and sets that variable to the proxy's URL until faults_stop().
 * arguments: further arguments of the proxy ("--tls", ...), ended by NULL; NULL: none. */
Faults *faults_start(const char *const *arguments);
Faults *faults_stop(Faults *faults);
DEFINE_CLEANUP(Faults, faults_stop)
const char *faults_endpoint(const Faults *faults);

/* Sends one command; returns the proxy's answer, a line of JSON. */
const char *faults_do(Faults *faults, const char *format, ...) _printf_(2, 3);
/* Returns the number that follows "name": in one of the proxy's answers. */
long faults_number(const char *answer, const char *name);

/* Adds one rule; returns its id. */
long faults_add(Faults *faults, const char *format, ...) _printf_(2, 3);
/* Waits until the rule has fired n times, at most a minute. */
void faults_wait(Faults *faults, long rule, int n);
/* Returns how many requests so far match. */
long faults_count(Faults *faults, const char *match);
