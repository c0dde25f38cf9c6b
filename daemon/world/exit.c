/* SPDX-License-Identifier: Apache-2.0 */
/* exit.c - see exit.h. */
#include "daemon/world/exit.h"

#include "base/printable.h"
#include "protocol/exit-code.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

void exit_repair_text(char *text) { printable_repair(text); }

/* Whoever leads puts words of its own before it, and a record's text has 255 bytes. */
enum { COMFORTABLE_BYTES = 191 };

void exit_copy_text(char ret[EXIT_TEXT_BYTES], const char *text)
{
    char whole[1024];
    (void)snprintf(whole, sizeof(whole), "%s", text); /* a longer one is cut */
    printable_repair(whole);
    printable_shorten_paths(whole, COMFORTABLE_BYTES);
    (void)snprintf(ret, EXIT_TEXT_BYTES, "%s", whole); /* likewise */
    printable_end(ret);
}

static void say(ExitVerdict *v, const char *text) { exit_copy_text(v->text, text); }

/* A trainer's own log line about its daily work explains no death, and neither does one after which it went on: a
 * warning, a save that failed. A library's last cry does. */
static bool explains(const char *line)
{
    static const char *const daily[] = {" info sdtrainer: ", " debug sdtrainer: ",
                                        " warning sdtrainer: "};
    for (size_t i = 0; i < ELEMENTSOF(daily); i++)
        if (strstr(line, daily[i]))
            return false;
    const char *error = strstr(line, " error sdtrainer: ");
    return *line && (!error || !strstr(error, ", training goes on: "));
}

ExitVerdict exit_judge(int code, int value, const LastWords *words, const char *last_line,
                       const char *killed_why)
{
    ExitVerdict v = {.code = code == CLD_EXITED ? value : -value};

    if (words->error) { /* it knew why, even if it was killed while it cleaned up */
        v.code = words->exit_code;
        say(&v, words->text);
        return v;
    }
    if (killed_why && v.code == -SIGKILL) {
        say(&v, killed_why);
        return v;
    }
    if (v.code == EXIT_DONE && words->done) {
        v.finished = strcmp(words->text, "finished") == 0;
        v.left = strcmp(words->text, "left") == 0;
        say(&v, words->text);
        return v;
    }
    if (v.code == EXIT_DONE) { /* a library called exit(0): nothing was finished */
        v.code = EXIT_RETRY;
        say(&v, "exited 0 without having said that it was done");
        return v;
    }
    if (explains(last_line)) {
        say(&v, last_line);
    } else if (v.code < 0) {
        const char *name = sigabbrev_np(-v.code); /* NULL: a real-time signal */
        (void)snprintf(v.text, sizeof(v.text), "killed by SIG%s%s", name ? name : "RT",
                       code == CLD_DUMPED ? ", core dumped" : "");
    } else {
        (void)snprintf(v.text, sizeof(v.text), "exited %d (%s) without a word", v.code,
                       exit_code_class(v.code));
    }
    return v;
}
