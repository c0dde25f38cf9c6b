/* SPDX-License-Identifier: Apache-2.0 */
/* verb.c - `sdctl completion SHELL`, and `sdctl complete WORD...`, which the shells' scripts call at each TAB.
 *
 * The scripts are short and the same for every version. They contain no words: `sdctl complete` takes the words from
 * the tables of verbs and options, and from the present state of the cluster. */
#include "ctl/arguments.h"
#include "ctl/dev/dev.h"
#include "ctl/model.h"

#include <string.h>

enum { PATIENCE_MSEC = 1500, WORDS_MAX = 64, VALUE_MAX = 120 };

static void print_verbs(const char *noun)
{
    const char *last = "";
    for (int i = 0; i < ctl_n_verbs; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        if (noun && v->noun && strcmp(v->noun, noun) == 0)
            printf("%s\t%s\n", v->name, v->about);
        if (!noun && strcmp(v->noun ? v->noun : v->name, last) != 0)
            printf("%s\t%s\n", last = v->noun ? v->noun : v->name, v->noun ? "" : v->about);
    }
}

/* ---- the cluster's present state; empty if etcd does not answer ---- */

static int read_now(const ClientOptions *options, Model **ret)
{
    Error ignored = ERROR_INIT; /* completion prints no errors */
    CtlClient client = {0};
    int r = client_open_briefly(options, PATIENCE_MSEC * USEC_PER_MSEC, &client, &ignored);
    if (r == 0)
        r = model_read(&client, ret, &ignored);
    client_close(&client);
    return r;
}

static void print_jobs(const ClientOptions *options)
{
    _cleanup_(model_freep) Model *model = NULL;
    if (read_now(options, &model) < 0)
        return;
    for (size_t i = 0; i < model->n_jobs; i++)
        if (model_is_shown(&model->jobs[i]))
            printf("%s\t%s\n", model->jobs[i].name, job_phase_name(model_phase(&model->jobs[i])));
}

static void print_nodes(const ClientOptions *options, const char *before)
{
    _cleanup_(model_freep) Model *model = NULL;
    if (read_now(options, &model) < 0)
        return;
    for (size_t i = 0; i < model->n_nodes; i++)
        printf("%s%s\t%s\n", before, model->nodes[i].name,
               node_verdict_names[model->nodes[i].verdict]);
    for (size_t i = 0; i < model->n_health; i++)
        if (!model_node(model, model->health[i].node))
            printf("%s%s\tgone\n", before, model->health[i].node);
}

static void print_processes(const char *dir)
{
    Error ignored = ERROR_INIT;
    char folder[PATH_MAX];
    Dev dev;
    if (dev_folder(dir, folder, &ignored) < 0 || dev_open(folder, &dev, &ignored) < 0)
        return;
    for (size_t i = 0; i < dev.n_processes; i++)
        printf("%s\t%s\n", dev.processes[i].name,
               dev_process_alive(&dev.processes[i]) ? "running" : "gone");
    dev_close(&dev);
}

/* ---- values ---- */

/* Prints the choices that a description names, one per line. For "PHASE|step=N" these are all phases and "step=", for
 * "json|text" they are "json" and "text". */
static void print_choices(const char *value)
{
    char words[VALUE_MAX];
    (void)snprintf(words, sizeof(words), "%s", value);
    for (char *save = NULL, *word = strtok_r(words, "|", &save); word;
         word = strtok_r(NULL, "|", &save)) {
        char *equals = strchr(word, '=');
        if (strcmp(word, "PHASE") == 0)
            for (int i = 0; i < PHASE_COUNT; i++)
                printf("%s\n", job_phase_name((JobPhase)i));
        else if (equals)
            printf("%.*s\n", (int)(equals - word) + 1, word);
        else if (*word >= 'a' && *word <= 'z')
            printf("%s\n", word);
    }
}

static void print_values(const char *value, const char *current, const ClientOptions *options)
{
    const char *comma = strrchr(current, ',');
    char before[200] = "";
    if (strcmp(value, "FILE") == 0)
        printf("<files>\n");
    else if (strcmp(value, "FOLDER") == 0)
        printf("<folders>\n");
    else if (strcmp(value, "KEY=VALUE") == 0)
        printf("train.steps=\ntrain.seed=\ntrain.optimizer.lr=\ncheckpoint.uri=\nworld.min=\nworld."
               "max=\n");
    if (comma)
        (void)snprintf(before, sizeof(before), "%.*s", (int)(comma - current) + 1, current);
    if (strcmp(value, "NODE,...") == 0)
        print_nodes(options, before);
    if (strchr(value, '|'))
        print_choices(value);
}

static void print_operands(const CtlVerb *verb, const char *dir, const ClientOptions *options)
{
    const char *operand = verb->operand ? verb->operand : "";
    if (strstr(operand, "FILE"))
        printf("<files>\n");
    if (strstr(operand, "NAME"))
        print_jobs(options);
    if (strcmp(operand, "NODE") == 0)
        print_nodes(options, "");
    if (strcmp(operand, "PROCESS") == 0)
        print_processes(dir);
    if (strcmp(operand, "SHELL") == 0)
        printf("bash\nzsh\nfish\n");
}

static const CtlVerb *find_verb(const char *noun, const char *name)
{
    for (int i = 0; i < ctl_n_verbs; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        if (v->noun ? strcmp(v->noun, noun) == 0 && name && strcmp(v->name, name) == 0
                    : strcmp(v->name, noun) == 0)
            return v;
    }
    return NULL;
}

/* Reads --etcd, --cluster and --dir from the command line, because they select the cluster whose names are
 * completed. */
static void read_line(int n, char **words, ClientOptions *options, const char **dir)
{
    for (int i = 0; i + 1 < n; i++) {
        if (strcmp(words[i], "--etcd") == 0)
            options->etcd = words[i + 1];
        if (strcmp(words[i], "--cluster") == 0)
            options->cluster = words[i + 1];
        if (strcmp(words[i], "--dir") == 0)
            *dir = words[i + 1];
    }
}

int completion_words(int n, char **words)
{
    ClientOptions options = {0};
    const char *dir = NULL, *current = n > 0 ? words[n - 1] : "";
    if (n > WORDS_MAX)
        return CTL_DONE;
    const CtlVerb *verb = n > 1 ? find_verb(words[0], n > 2 ? words[1] : NULL) : NULL;
    if (n <= 1 || !verb) {
        if (n <= 2)
            print_verbs(n == 2 ? words[0] : NULL);
        return CTL_DONE;
    }
    read_line(n - 1, words, &options, &dir);
    const int first = verb->noun ? 2 : 1; /* index of the first word after the verb */
    const char *last = n - 2 >= first ? words[n - 2] : "";
    const char *value = arguments_value_of(verb, last);
    if (value && *value)
        print_values(value, current, &options);
    else if (*current == '-')
        arguments_print_options(stdout, verb);
    else
        print_operands(verb, dir, &options);
    return CTL_DONE;
}

/* ---- the scripts ---- */

static const char bash_script[] =
    "# source <(sdctl completion bash)\n"
    "_sdctl() {\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} words\n"
    "    words=$(sdctl complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null | cut -f1)\n"
    "    COMPREPLY=()\n"
    "    case $words in\n"
    "    *'<files>'*) compopt -o filenames; COMPREPLY=($(compgen -f -- \"$current\")) ;;\n"
    "    *'<folders>'*) compopt -o filenames; COMPREPLY=($(compgen -d -- \"$current\")) ;;\n"
    "    esac\n"
    "    COMPREPLY+=($(compgen -W \"${words//<f*>/}\" -- \"$current\"))\n"
    "    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace\n"
    "    return 0\n"
    "}\n"
    "complete -F _sdctl sdctl\n";

static const char zsh_script[] =
    "#compdef sdctl\n"
    "# source <(sdctl completion zsh), or as _sdctl in a folder of $fpath\n"
    "_sdctl() {\n"
    "    local line\n"
    "    local -a all\n"
    "    for line in ${(f)\"$(sdctl complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)\"}; do\n"
    "        case $line in\n"
    "        '<files>') _files ;;\n"
    "        '<folders>') _files -/ ;;\n"
    "        *) all+=(\"${${line%%$'\\t'*}//:/\\\\:}${${(M)line:#*$'\\t'?*}:+:${line#*$'\\t'}}\") "
    ";;\n"
    "        esac\n"
    "    done\n"
    "    (( $#all )) && _describe sdctl all\n"
    "}\n"
    "if [[ $funcstack[1] == _sdctl ]]; then _sdctl \"$@\"; else compdef _sdctl sdctl; fi\n";

static const char fish_script[] =
    "# sdctl completion fish > ~/.config/fish/completions/sdctl.fish\n"
    "function __sdctl_words\n"
    "    set -l words (commandline -opc) (commandline -ct)\n"
    "    for line in (sdctl complete $words[2..-1] 2>/dev/null)\n"
    "        switch $line\n"
    "            case '<files>'\n"
    "                __fish_complete_path (commandline -ct)\n"
    "            case '<folders>'\n"
    "                __fish_complete_directories (commandline -ct)\n"
    "            case '*'\n"
    "                echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c sdctl -f -a '(__sdctl_words)'\n";

int completion(const Arguments *a)
{
    const struct {
        const char *shell, *script;
    } scripts[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};
    for (size_t i = 0; i < ELEMENTSOF(scripts); i++)
        if (strcmp(a->operand, scripts[i].shell) == 0) {
            printf("%s", scripts[i].script);
            return CTL_DONE;
        }
    return arguments_refuse(a->verb, "SHELL is bash, zsh or fish, not \"%s\"", a->operand);
}
