# SPDX-License-Identifier: Apache-2.0
"""Run by tests/recipes/schemas: the recipes for Kubernetes and ParallelCluster by their schemas, and a slip in each."""
import copy
import json
import os
import subprocess
import sys

import kubernetes_validate
import yaml
from pcluster.schemas.cluster_schema import ClusterSchema

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
RECIPES = os.path.join(ROOT, "ops/recipes")
VERSIONS = ("1.27", "1.37")
SDTRAIND = os.path.join(os.environ.get("SDTRAIN_BIN") or os.path.join(ROOT, "build/release/bin"), "sdtraind")


def refused(check, document):
    try:
        check(document)
    except Exception as e:
        return str(e) or repr(e)
    return None


def kubernetes():
    with open(os.path.join(RECIPES, "kubernetes/sdtrain.yaml")) as file:
        documents = list(yaml.safe_load_all(file))
    for version in VERSIONS:
        for document in documents:
            kubernetes_validate.validate(document, version, strict=True)
    slip = copy.deepcopy(next(d for d in documents if d["kind"] == "DaemonSet"))
    slip["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 75
    said = refused(lambda d: kubernetes_validate.validate(d, VERSIONS[-1], strict=True), slip)
    assert said and "terminationGracePeriodSecond" in said, said
    # What the pods are told is what the daemons take.
    settings = next(d for d in documents if d["kind"] == "ConfigMap")["data"]
    if os.path.exists(SDTRAIND):
        for name, text in settings.items():
            program = os.path.join(os.path.dirname(SDTRAIND), name.removesuffix(".json"))
            path = os.path.join(ROOT, "build/recipes", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                json.dump(json.loads(text), file)
            words = ["--address=10.0.0.1", "--node=n1", "--machine-id=" + 32 * "1"] if name == "sdtraind.json" else []
            subprocess.run([program, "--config", path, *words, "--check-config"], check=True)
    print("kubernetes: %d resources are good for %s" % (len(documents), " and ".join(VERSIONS)))


def parallelcluster():
    with open(os.path.join(RECIPES, "parallelcluster/cluster.yaml")) as file:
        text = yaml.safe_load(file)
    ClusterSchema(cluster_name="sdtrain").load(copy.deepcopy(text))
    text["Scheduling"]["SlurmQueues"][0]["CapacityTyp"] = "SPOT"
    said = refused(ClusterSchema(cluster_name="sdtrain").load, text)
    assert said and "CapacityTyp" in said, said
    print("parallelcluster: cluster.yaml is good")


if __name__ == "__main__":
    kubernetes()
    parallelcluster()
    sys.exit(0)
