/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.c - see interrupt.h. */
#include "ctl/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char text[400];
static size_t n_text;

/* Prints the text and raises the signal again. SA_RESETHAND has restored the default action, so the signal ends the
 * process when this handler returns. */
static void on_interrupt(int number)
{
    int before = errno;
    (void)!write(STDERR_FILENO, text, n_text); /* a failure cannot be reported */
    errno = before;
    (void)raise(number); /* a failure cannot be reported */
}

void interrupt_print(const char *format, ...)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, before;
    size_t used = (size_t)snprintf(text, sizeof(text), "\nsdctl: ");
    va_list ap;
    va_start(ap, format);
    /* The text is not cut, because the names in it are short. */
    (void)vsnprintf(text + used, sizeof(text) - used - 1, format, ap);
    va_end(ap);
    used = strlen(text);
    text[used++] = '\n';
    n_text = used;
    (void)sigemptyset(&action.sa_mask); /* like sigaction(), can fail only for a bad argument */
    if (sigaction(SIGINT, NULL, &before) == 0 &&
        before.sa_handler != SIG_IGN) /* SIGINT is ignored in a background job */
        (void)sigaction(SIGINT, &action, NULL);
}
