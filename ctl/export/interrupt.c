/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.c - see interrupt.h. */
#include "ctl/export/interrupt.h"

#include <errno.h>
#include <signal.h>

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
static struct sigaction before[ELEMENTSOF(signals)];
static volatile sig_atomic_t received; /* the signal that was received; 0: none */

static void note(int number) { received = number; }

void interrupt_begin(void)
{
    struct sigaction noted = {.sa_handler = note, .sa_flags = SA_RESTART};
    /* sigemptyset() and sigaction() can fail only for a bad argument. */
    (void)sigemptyset(&noted.sa_mask);
    for (size_t i = 0; i < ELEMENTSOF(signals); i++)
        (void)sigaction(signals[i], &noted, &before[i]);
}

int interrupt_check(Error *err) { return received ? error_set(err, -EINTR, "interrupted") : 0; }

void interrupt_end(void)
{
    for (size_t i = 0; i < ELEMENTSOF(signals); i++)
        (void)sigaction(signals[i], &before[i], NULL); /* can fail only for a bad argument */
    if (received)
        (void)raise(received); /* on failure the verb still returns its exit code */
}
