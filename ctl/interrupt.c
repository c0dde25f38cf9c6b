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

/* SA_RESETHAND: the raised one, which comes when this returns, ends the process by the signal. */
static void on_interrupt(int number)
{
    int before = errno;
    (void)!write(STDERR_FILENO, text, n_text); /* there is nobody to tell if it fails */
    errno = before;
    (void)raise(number); /* likewise */
}

void interrupt_print(const char *format, ...)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, before;
    size_t used = (size_t)snprintf(text, sizeof(text), "\nsdctl: ");
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text + used, sizeof(text) - used - 1, format, ap); /* names are short */
    va_end(ap);
    used = strlen(text);
    text[used++] = '\n';
    n_text = used;
    (void)sigemptyset(&action.sa_mask); /* it only fails for a bad argument, as sigaction() here */
    if (sigaction(SIGINT, NULL, &before) == 0 &&
        before.sa_handler != SIG_IGN) /* in the background */
        (void)sigaction(SIGINT, &action, NULL);
}
