/* SPDX-License-Identifier: Apache-2.0 */
/* completion.c - `sdctl completion bash`: a script made from the tables of verbs and options. */
#include "ctl/arguments.h"

#include <string.h>

static void print_names(const char *noun)
{
    const char *last = "";
    for (int i = 0; i < ctl_n_verbs; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        if (noun && v->noun && strcmp(v->noun, noun) == 0)
            printf("%s ", v->name);
        if (!noun && strcmp(v->noun ? v->noun : v->name, last) != 0)
            printf("%s ", last = v->noun ? v->noun : v->name);
    }
}

static void print_nouns(void)
{
    const char *last = "";
    for (int i = 0; i < ctl_n_verbs; i++) {
        const char *noun = ctl_verbs[i].noun;
        if (!noun || strcmp(noun, last) == 0)
            continue;
        last = noun;
        printf("        %s) words=\"", noun);
        print_names(noun);
        printf("\" ;;\n");
    }
    printf("        completion) words=bash ;;\n");
}

static void print_verbs(void)
{
    for (int i = 0; i < ctl_n_verbs; i++) {
        const CtlVerb *v = &ctl_verbs[i];
        if (!v->noun)
            continue;
        printf("        \"%s %s\") words=\"", v->noun, v->name);
        arguments_print_options(stdout, v);
        printf("\"");
        if (v->operand && strncmp(v->operand, "NAME", 4) == 0)
            printf(" names='job list'");
        if (v->operand && strcmp(v->operand, "NODE") == 0)
            printf(" names='node list'");
        printf(" ;;\n");
    }
}

int completion(const Arguments *a)
{
    if (strcmp(a->operand, "bash") != 0)
        return arguments_refuse(a->verb, "SHELL is bash, not \"%s\"", a->operand);
    printf("# source <(sdctl completion bash)\n"
           "_sdctl() {\n"
           "    local words= names= current=${COMP_WORDS[COMP_CWORD]}\n"
           "    case $COMP_CWORD in\n"
           "    1) words=\"");
    print_names(NULL);
    printf("\" ;;\n"
           "    2) case ${COMP_WORDS[1]} in\n");
    print_nouns();
    printf("        esac ;;\n"
           "    *) case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n");
    print_verbs();
    printf("        esac\n"
           "        case ${COMP_WORDS[COMP_CWORD-1]} in\n"
           "        -f|--file|--out|--dir|--model|--pipeline) COMPREPLY=($(compgen -f -- "
           "\"$current\")); "
           "return ;;\n"
           "        esac\n"
           "        [[ $names && $current != -* ]] &&\n"
           "            words=$(sdctl $names 2>/dev/null | awk 'NR > 1 { print $1 }') ;;\n"
           "    esac\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
           "}\n"
           "complete -F _sdctl sdctl\n");
    return CTL_DONE;
}
