#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ParallelCluster's OnNodeConfigured: readies a compute node for ops/recipes/slurm/sdtrain.sbatch.
#   node-configured.sh SHARED      the folder of all nodes: SHARED/bin has the programs, SHARED/libraries.txt names packages
# It starts nothing: the batch job does. It fails where a program misses a library, so that no bad node joins.
set -euo pipefail
shared=${1:?the folder that all nodes see}
if [ -s "$shared/libraries.txt" ]; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q
    xargs -r apt-get install -y -q --no-install-recommends <"$shared/libraries.txt"
fi
for program in sdtraind sdtrainer; do
    if ! missing=$(ldd "$shared/bin/$program") || grep 'not found' <<<"$missing"; then
        echo "node-configured.sh: $shared/bin/$program does not run here" >&2
        exit 1
    fi
done
# Spot notices are read at the instance's own endpoint (docs/operating/health.md, "Spot instances").
cat >"/etc/sdtraind-slurm.json" <<'JSON'
{"spot_endpoint": "http://169.254.169.254", "kernel_log": "off"}
JSON
