"""Checks the files of deploy/ against the schemas of Compose and Kubernetes. No container engine is needed.

usage: deploy.py FOLDER        prints each file that was checked; says what is wrong, and exits with 1
"""
import importlib.util
import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

KUBERNETES = "1.31"
folder = pathlib.Path(sys.argv[1])
wrong = []


def check_compose(path):
    file = yaml.safe_load(path.read_text())
    # Its top level knows no `name` yet.
    file.pop("name")
    # Only its schema is used: the package itself needs an older PyYAML.
    package = pathlib.Path(importlib.util.find_spec("compose").origin).parent
    schema = json.loads((package / "config" / "compose_spec.json").read_text())
    for error in jsonschema.Draft7Validator(schema).iter_errors(file):
        wrong.append(f"{path.name}: {'/'.join(map(str, error.path))}: {error.message}")
    services = file["services"]
    for name, service in services.items():
        for other in service.get("depends_on", []):
            if other not in services:
                wrong.append(f"{path.name}: {name} depends on {other}, which is not there")


def check_manifest(path):
    for resource in yaml.safe_load_all(path.read_text()):
        if resource["kind"] == "Kustomization":
            for other in resource["resources"]:
                if not (path.parent / other).exists():
                    wrong.append(f"{path.name}: there is no {other}")
            continue
        try:
            kubernetes_validate.validate(resource, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            wrong.append(f"{path.name}: {'/'.join(map(str, error.path))}: {error.message}")
        yield resource


def check_selectors(resources):
    """The service and the budget select the pods of the deployment, and ports have names that it has."""
    kinds = {resource["kind"]: resource["spec"] for resource in resources if "spec" in resource}
    pod = kinds["Deployment"]["template"]
    labels = pod["metadata"]["labels"]
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    for kind, selector in [
        ("Deployment", kinds["Deployment"]["selector"]["matchLabels"]),
        ("PodDisruptionBudget", kinds["PodDisruptionBudget"]["selector"]["matchLabels"]),
        ("NetworkPolicy", kinds["NetworkPolicy"]["podSelector"]["matchLabels"]),
        ("Service", kinds["Service"]["selector"]),
    ]:
        if not selector.items() <= labels.items():
            wrong.append(f"the {kind} selects {selector}, and the pods have {labels}")
    for port in kinds["Service"]["ports"]:
        if port["targetPort"] not in ports:
            wrong.append(f"the Service leads to port {port['targetPort']}, and the pods have {ports}")


check_compose(folder / "compose.yaml")
print("compose.yaml")
resources = []
for path in sorted((folder / "kubernetes").glob("*.yaml")):
    resources += check_manifest(path)
    print(f"kubernetes/{path.name}")
check_selectors(resources)
if wrong:
    sys.exit("\n".join(wrong))
