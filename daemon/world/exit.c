/* SPDX-License-Identifier: Apache-2.0 */
/* exit.c - see exit.h. */
#include "daemon/world/exit.h"

#include "base/text/printable.h"
#include "protocol/exit-code.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

void exit_repair_text(char *text) { printable_repair(text); }

/* If a rank's text has at most this length, the leader can put words before it in a record's text of 255 bytes. */
enum { COMFORTABLE_BYTES = 191 };

static void copy_whole(char *ret, size_t size, const char *text)
{
    (void)snprintf(ret, size, "%s", text); /* a longer text is cut */
    printable_repair(ret);
}

static void copy(char ret[EXIT_TEXT_BYTES], const char *text)
{
    (void)snprintf(ret, EXIT_TEXT_BYTES, "%s", text); /* evidence may be cut */
    printable_end(ret);
}

void exit_copy_text(char ret[EXIT_TEXT_BYTES], const char *text, const char *resumes)
{
    char whole[1024], folder[1024];
    copy_whole(whole, sizeof(whole), text);
    copy_whole(folder, sizeof(folder), resumes);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    printable_shorten_paths(whole, COMFORTABLE_BYTES, folder);
    copy(ret, whole);
}

static void set_text(ExitVerdict *v, const char *text) { copy(v->text, text); }

/* Returns whether the last line explains the rank's end. A library's last message explains it. A trainer's log line
 * does not if it reports routine work, or an event after which the trainer went on: a warning, or a failed save. */
static bool explains(const char *line)
{
    static const char *const daily[] = {" info sdtrain", " debug sdtrain", " warning sdtrain"};
    for (size_t i = 0; i < ELEMENTSOF(daily); i++) {
        const char *at = strstr(line, daily[i]);
        const char *rest = at ? at + strlen(daily[i]) : "";
        if (strncmp(rest, "er: ", 4) == 0 || strncmp(rest, "-exec: ", 7) == 0)
            return false;
    }
    const char *error = strstr(line, " error sdtrainer: ");
    return *line && (!error || !strstr(error, ", training goes on: "));
}

ExitVerdict exit_judge(int code, int value, const LastWords *words, const char *last_line,
                       const char *killed_why)
{
    ExitVerdict v = {.code = code == CLD_EXITED ? value : -value};

    if (words->error) { /* the trainer named its reason, even if it was killed during its cleanup */
        v.code = words->exit_code;
        set_text(&v, words->text);
        return v;
    }
    if (killed_why && v.code == -SIGKILL) {
        set_text(&v, killed_why);
        return v;
    }
    if (v.code == EXIT_DONE && words->done) {
        v.finished = strcmp(words->text, "finished") == 0;
        v.left = strcmp(words->text, "left") == 0;
        set_text(&v, words->text);
        return v;
    }
    if (v.code == EXIT_DONE) { /* a library called exit(0): nothing was finished */
        v.code = EXIT_RETRY;
        set_text(&v, "exited 0 without having said that it was done");
        return v;
    }
    if (explains(last_line)) {
        set_text(&v, last_line);
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
