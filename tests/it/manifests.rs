//! The shipped manifests against the program: what they grant is what it uses, what they name exists.
//!
//! Invariant: RBAC is compared in both directions. A verb too few fails at the first pod, a verb too many is never noticed
//! in use. What is used is not listed here: the program's requests are made from the rights that they need.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use mig_scheduler::config::Config;
use mig_scheduler::shell::dispatch::Call;
use mig_scheduler::shell::forecasts;
use mig_scheduler::shell::http::{self, Health, Pages};
use mig_scheduler::shell::lease::LeaderToken;
use mig_scheduler::shell::metrics::Metrics;
use mig_scheduler::shell::run::LONGEST_STOP;
use mig_scheduler::shell::watch;
use serde::Deserialize;
use serde_yaml::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of one file.
fn documents(path: &Path) -> Vec<Value> {
    let text = read(path);
    let parse =
        |document| Value::deserialize(document).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_yaml::Deserializer::from_str(&text).map(parse).collect()
}

/// All YAML files under `directory`.
fn yaml_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The documents of the base that are Kubernetes objects, in the order they are applied.
fn objects() -> Vec<Value> {
    let base = root().join("manifests/base");
    let kustomization = documents(&base.join("kustomization.yaml")).remove(0);
    let resources: Vec<String> = serde_yaml::from_value(kustomization["resources"].clone()).unwrap();
    let files = resources.iter().map(|name| base.join(name)).filter(|path| !path.is_dir());
    files.flat_map(|path| documents(&path)).collect()
}

/// The one object of this kind.
fn object(kind: &str) -> Value {
    let mut found: Vec<Value> = objects().into_iter().filter(|object| object["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "objects of kind {kind}");
    found.remove(0)
}

fn strings(value: &Value) -> Vec<String> {
    value.as_sequence().into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// What the rules of a role grant: group, resource, verb, names.
fn grants(role: &Value) -> BTreeSet<(String, String, String, Vec<String>)> {
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_sequence().unwrap() {
        for group in strings(&rule["apiGroups"]) {
            for resource in strings(&rule["resources"]) {
                for verb in strings(&rule["verbs"]) {
                    let names = strings(&rule["resourceNames"]);
                    granted.insert((group.clone(), resource.clone(), verb, names));
                }
            }
        }
    }
    granted
}

fn container() -> Value {
    let containers = &object("Deployment")["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers.as_sequence().unwrap().len(), 1);
    containers[0].clone()
}

fn shipped_config() -> Config {
    Config::load(&root().join("scheduler-config/scheduler-config.yaml")).unwrap()
}

/// Tests that every YAML file is well-formed, and every object of the base has its four names and no duplicate.
#[test]
fn manifests_parse() {
    let files = yaml_files(&root().join("manifests"));
    assert!(files.len() > 5, "{files:?}");
    files.iter().for_each(|file| assert!(!documents(file).is_empty(), "{}", file.display()));
    let mut seen = BTreeSet::new();
    for object in objects() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = (text(&object["apiVersion"]), text(&object["kind"]), text(&object["metadata"]["name"]));
        assert!(!key.0.is_empty() && !key.1.is_empty() && !key.2.is_empty(), "{object:?}");
        assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/name"], "mig-scheduler", "{key:?}");
        assert!(seen.insert(key.clone()), "twice: {key:?}");
    }
}

/// Tests that the base is the whole folder: a file that is not listed would silently not be applied.
#[test]
fn kustomization_lists_every_file() {
    let base = root().join("manifests/base");
    let listed = strings(&documents(&base.join("kustomization.yaml"))[0]["resources"]);
    let mut expected: Vec<String> = yaml_files(&base)
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name != "kustomization.yaml")
        .collect();
    expected.push("../../scheduler-config".to_owned());
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), expected.into_iter().collect());
}

/// Tests that the ClusterRole grants what the shell uses: no verb less, no verb more.
#[test]
fn cluster_role_is_what_the_shell_uses() {
    let used = watch::RIGHTS.into_iter().chain(Call::ALL.map(Call::right));
    let used = used
        .map(|(group, resource, verb)| (group.to_owned(), resource.to_owned(), verb.to_owned(), Vec::new()));
    assert_eq!(grants(&object("ClusterRole")), used.collect());
}

/// Tests that the Role grants the configured Lease and ConfigMap and no others; what is not there yet has no name to grant.
#[test]
fn role_is_the_lease_and_what_is_learnt() {
    let (election, learnt) = (shipped_config().leader_election, shipped_config().forecasting.config_map);
    let lease = ["create", "get", "update"].map(|verb| ("coordination.k8s.io", "leases", verb));
    let lease = lease.map(|right| (right, election.resource_name.clone()));
    let expected = lease.into_iter().chain(forecasts::RIGHTS.map(|right| (right, learnt.clone())));
    let expected = expected.map(|((group, resource, verb), name)| {
        let names = if verb == "create" { Vec::new() } else { vec![name] };
        (group.to_owned(), resource.to_owned(), verb.to_owned(), names)
    });
    let role = object("Role");
    assert_eq!(grants(&role), expected.collect());
    assert_eq!(role["metadata"]["namespace"], election.resource_namespace.as_str());
}

/// Tests that both bindings join their role to the account the pods run as.
#[test]
fn bindings_join_account_and_roles() {
    let account = object("ServiceAccount");
    let pod = object("Deployment")["spec"]["template"]["spec"].clone();
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
    for (binding, role) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
        let (binding, role) = (object(binding), object(role));
        assert_eq!(binding["roleRef"]["kind"], role["kind"]);
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        let subjects = binding["subjects"].as_sequence().unwrap();
        assert_eq!(subjects.len(), 1);
        assert_eq!(subjects[0]["kind"], "ServiceAccount");
        assert_eq!(subjects[0]["name"], account["metadata"]["name"]);
        assert_eq!(subjects[0]["namespace"], account["metadata"]["namespace"]);
    }
}

/// Tests that everything namespaced is in the one namespace, which the configuration's Lease shares.
#[test]
fn one_namespace() {
    let namespace = object("Namespace")["metadata"]["name"].clone();
    assert_eq!(namespace, shipped_config().leader_election.resource_namespace.as_str());
    for object in objects() {
        let cluster_wide =
            matches!(object["kind"].as_str(), Some("Namespace" | "ClusterRole" | "ClusterRoleBinding"));
        let expected = if cluster_wide { Value::Null } else { namespace.clone() };
        let found = object["metadata"].get("namespace").cloned().unwrap_or(Value::Null);
        assert_eq!(found, expected, "{:?}", object["kind"]);
    }
}

/// Tests that the mounted file is the ConfigMap's, valid to the program itself, and named by the arguments.
#[test]
fn container_reads_the_shipped_configuration() {
    let args = strings(&container()["args"]);
    assert_eq!(args[..2], ["run", "--config"]);
    let mounted = Path::new(&args[2]);
    let mount = &container()["volumeMounts"][0];
    assert_eq!(mounted.parent().unwrap(), Path::new(mount["mountPath"].as_str().unwrap()));

    let volume = object("Deployment")["spec"]["template"]["spec"]["volumes"][0].clone();
    assert_eq!(volume["name"], mount["name"]);
    let generator = documents(&root().join("scheduler-config/kustomization.yaml")).remove(0);
    let generated = &generator["configMapGenerator"][0];
    assert_eq!(generated["name"], volume["configMap"]["name"]);
    let file = mounted.file_name().unwrap().to_str().unwrap();
    assert_eq!(strings(&generated["files"]), [file]);

    let path = root().join("scheduler-config").join(file);
    let check =
        Command::new(env!("CARGO_BIN_EXE_mig-scheduler")).args(["config", "check"]).arg(path).output();
    let check = check.unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

/// Tests that ports agree from the configuration to the Service, and that probes ask for pages that exist.
#[test]
fn ports_and_probes_fit_the_server() {
    let port = shipped_config().http.bind_address.unwrap().port();
    let container = container();
    assert_eq!(container["ports"][0]["containerPort"], u64::from(port));
    let service = object("Service");
    assert_eq!(service["spec"]["ports"][0]["port"], u64::from(port));
    assert_eq!(service["spec"]["ports"][0]["targetPort"], container["ports"][0]["name"]);
    for (probe, expected) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["path"], expected);
        assert_eq!(get["port"], container["ports"][0]["name"]);
        assert_ne!(first_line(expected), first_line("/nowhere"), "{probe}");
    }
}

/// The first line the real server answers to a GET.
fn first_line(path: &str) -> String {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let metrics = Arc::new(Metrics::new("mig-scheduler"));
    let token = LeaderToken::unelected();
    let pages = Pages::new(&Config::default(), "test", Health::new(), metrics, token).unwrap();
    let listener = runtime.block_on(http::bind("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(http::serve(listener, pages, std::future::pending()));
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap().to_owned()
}

/// Tests that the pod is as confined as it claims, and is not scheduled by itself.
#[test]
fn pod_is_confined() {
    let pod = object("Deployment")["spec"]["template"]["spec"].clone();
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_ne!(pod["schedulerName"], shipped_config().scheduler_name.as_str());
    let confined = &container()["securityContext"];
    assert_eq!(confined["readOnlyRootFilesystem"], true);
    assert_eq!(confined["allowPrivilegeEscalation"], false);
    assert_eq!(strings(&confined["capabilities"]["drop"]), ["ALL"]);
}

/// Tests that a shutdown that takes as long as it may is not cut short.
#[test]
fn grace_period_is_longer_than_a_shutdown() {
    let pod = object("Deployment")["spec"]["template"]["spec"].clone();
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace > LONGEST_STOP.as_secs() + 5, "{grace}");
}

/// Tests that several replicas are only ever run with leader election, and that a drain leaves one.
#[test]
fn replicas_need_the_lease() {
    let deployment = object("Deployment");
    assert!(deployment["spec"]["replicas"].as_u64().unwrap() > 1);
    assert!(shipped_config().leader_election.leader_elect);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    for selector in [
        &deployment["spec"]["selector"]["matchLabels"],
        &object("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        &object("Service")["spec"]["selector"],
    ] {
        assert_eq!(selector, labels);
    }
}
