/* SPDX-License-Identifier: Apache-2.0 */
/* exec-variables.h - the environment of a program of a job of kind "exec": what torchrun would give it, and what
 * sdtrain adds.
 *
 * Ownership: exec_variables_fill() gives the caller a string to free(). The *_new() functions and exec_values_set()
 *            make texts that the matching *_clear() or *_free() frees.
 * Units:     none.
 * Errors:    see each function.
 * Threads:   any.
 * Source:    docs/operating/programs.md.
 */
#pragma once

#include "protocol/job.h"

/* Environment of a runner. EXEC_DIR_VARIABLE: the folder in which each slot has its own. EXEC_SECRETS_VARIABLE: the
 * file of the node's secrets; unset: there is none. */
#define EXEC_DIR_VARIABLE "SDTRAIN_EXEC_DIR"
#define EXEC_SECRETS_VARIABLE "SDTRAIN_EXEC_SECRETS"
/* If set, the runner prints what a program would find, and ends. */
#define EXEC_LOOK_VARIABLE "SDTRAIN_EXEC_LOOK"

/* The variables, in the order in which they are written into the environment. */
typedef enum ExecVariable {
    EXEC_RANK,
    EXEC_WORLD_SIZE,
    EXEC_LOCAL_RANK,
    EXEC_LOCAL_WORLD_SIZE,
    EXEC_GROUP_RANK,
    EXEC_GROUP_WORLD_SIZE,
    EXEC_ROLE_RANK,
    EXEC_ROLE_WORLD_SIZE,
    EXEC_ROLE_NAME,
    EXEC_NODE_RANK,
    EXEC_CROSS_RANK,
    EXEC_CROSS_SIZE,
    EXEC_LOCAL_SIZE,
    EXEC_MASTER_ADDR,
    EXEC_MASTER_PORT,
    EXEC_RUN_ID,
    EXEC_RESTART_COUNT,
    EXEC_MAX_RESTARTS,
    EXEC_USE_AGENT_STORE,
    EXEC_ERROR_FILE,
    EXEC_CUDA_DEVICE_ORDER,
    EXEC_CUDA_VISIBLE_DEVICES,
    EXEC_JOB,
    EXEC_GENERATION,
    EXEC_NODE,
    EXEC_SOCKET,
    EXEC_CHECKPOINT,
    EXEC_STEP,
    EXEC_HOLD,
    EXEC_VARIABLES,
} ExecVariable;

const char *exec_variable_name(ExecVariable variable);
/* Tells whether only sdtrain sets a variable of this name: one of the list, or a name that begins with SDTRAIN_. */
bool exec_variable_is_ours(const char *name);

/* Finds what is wrong with the ${NAME} and $$ in a text of a job file. Returns NULL: nothing is wrong; else a text for
 * people, such as "${RNAK} is not known". for_node: the text is for a whole node, which has no rank of its own. */
const char *exec_variables_check(const char *text, bool for_node, char *ret, size_t size);
/* Replaces each ${NAME} by values[variable], and $$ by $. The text must have passed exec_variables_check(). A value
 * that is NULL counts as empty. */
char *exec_variables_fill(const char *text, const char *const values[EXEC_VARIABLES]);

/* Where a rank runs. Texts are borrowed. */
typedef struct ExecRank {
    int rank, world_size;
    int local_rank, per_node; /* number of the rank on its node; ranks of each node */
    int node_rank, n_nodes;
    int64_t generation;
    const char *node;       /* the node's name */
    const char *submission; /* 32 hex digits */
    const char *gpus; /* UUIDs of the GPUs that the rank may use, separated by commas; NULL: none */
    const char *folder; /* the rank's own folder */
    const char *tmp;    /* folder for temporary files of the world's ranks on this node */
    const char
        *flights; /* the folder that has the node's flight records in its own folder "flights" */
    const char *checkpoint; /* URI that the program registered last; "": none */
    int64_t checkpoint_step;
} ExecRank;

/* Values of the variables, by ExecVariable. NULL: not known yet. */
typedef struct ExecValues {
    char *of[EXEC_VARIABLES];
    char *tmp; /* TMPDIR, unless the node or the job sets it */
    char *
        flight; /* name of NCCL's flight record without the rank's number, unless they set another one */
} ExecValues;

/* Sets all values but MASTER_ADDR, MASTER_PORT and SDTRAIN_HOLD, which are known when the world may go. */
void exec_values_new(const Job *job, const ExecRank *rank, ExecValues *ret);
/* Takes over the text. */
void exec_values_set(ExecValues *values, ExecVariable variable, char *text);
void exec_values_clear(ExecValues *values);

/* Makes the environment: the user's HOME, USER and LOGNAME and a PATH, then `node` (entries of the node's settings),
 * then exec.env, then `secrets` (NAME=value), then our own variables. A later entry replaces an earlier one of its
 * name. The defaults of torchrun are set where nothing else has set them. node and secrets end with NULL, and may be
 * NULL. memory_free_texts() frees the result. */
char **exec_environment_new(const Job *job, const ExecValues *values, char *const *node,
                            char *const *secrets);
/* Returns the value of a name, or NULL. */
const char *exec_environment_find(char *const *environment, const char *name);

/* Fills in the ${NAME} of each text of a list that ends with NULL. memory_free_texts() frees the result. */
char **exec_arguments_new(char *const *list, const ExecValues *values);
