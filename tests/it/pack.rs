//! `pack` as a user calls it: what it accepts, what it refuses and in which words, and that its answer can be carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use mig_scheduler::mig::{GpuModel, Layout, Placement};
use mig_scheduler::solver::packing::MAX_ITEMS;
use serde_json::{Value, json};

/// Exit code, stdout and stderr of `pack` with this stdin.
fn pack(arguments: &[&str], document: &str) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mig-scheduler"))
        .arg("pack")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A call that is refused before it reads leaves a closed pipe.
    let _ = child.stdin.take().unwrap().write_all(document.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn packed(arguments: &[&str], document: &str) -> Value {
    let (code, out, err) = pack(&[&["--json"], arguments].concat(), document);
    assert_eq!((code, err.as_str()), (0, ""));
    serde_json::from_str(&out).unwrap()
}

/// Two GPUs. A `4g` fits only where `ai/a` is, which has to move for it; a `3g` only where a free instance is in the way.
const CLUSTER: &str = "
demand: [{profile: 4g.20gb, priority: 5}, {profile: 3g.20gb}]
gpus:
  - node: n0
    index: 0
    model: A100-40GB
    instances:
      - {profile: 2g.10gb, start: 0, pod: ai/a, movable: true}
      - {profile: 3g.20gb, start: 4, pod: ai/b}
  - node: n0
    index: 1
    model: NVIDIA-A100-SXM4-40GB
    instances: [{profile: 1g.5gb, start: 0, pod: ai/c}, {profile: 1g.5gb, start: 4}]
";

#[track_caller]
fn check_refused(arguments: &[&str], document: &str, expected: &str) {
    let (code, out, err) = pack(arguments, document);
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.starts_with("error: ") && err.contains(expected), "{err}");
}

/// One line, which begins with the place.
#[track_caller]
fn check_document(document: &str, expected: &str) {
    let (code, out, err) = pack(&[], document);
    assert_eq!((code, out.as_str(), err.as_str()), (2, "", format!("error: stdin: {expected}\n").as_str()));
}

fn with_demand(demand: &str) -> String {
    format!("demand: [{demand}]\ngpus: [{{node: n0, index: 0, model: A30-24GB}}]")
}

fn with_gpus(gpus: &str) -> String {
    format!("demand: [{{profile: 1g.5gb}}]\ngpus:\n{gpus}")
}

#[test]
fn a_demand_that_cannot_be_meant_is_refused() {
    let check = |demand: &str, expected: &str| check_document(&with_demand(demand), expected);
    check(
        "{profile: 9g.5gb}",
        "demand[0].profile: no known GPU model has `9g.5gb`: correct it, or add its model to the tables",
    );
    check(
        "{profile: 1g.6gb}, {profile: small}",
        "demand[1].profile: `small` is not a MIG profile: write it as `1g.5gb` or `1g.5gb+me`",
    );
    check("{profile: 1g.6gb, count: -1}", "demand[0].count: -1 is not a whole number from 0 to 4294967295");
    check("{profile: 1g.6gb, count: 1.5}", "demand[0].count: 1.5 is not a whole number from 0 to 4294967295");
    check(
        "{profile: 1g.6gb, count: 5000000000}",
        "demand[0].count: 5000000000 is not a whole number from 0 to 4294967295",
    );
    check(
        "{profile: 1g.6gb, count: 4000000000}",
        &format!(
            "demand: 4000000000 are more than the {MAX_ITEMS} that one problem may have: correct the count, or divide it"
        ),
    );
    check(
        "{profile: 1g.6gb, count: many}",
        "demand[0].count: \"many\" is not a whole number from 0 to 4294967295",
    );
    check("{count: 2}", "demand[0]: missing field `profile`; add it");
    check(
        "{profile: 1g.6gb, cuont: 2}",
        "demand[0].cuont: unknown field; did you mean \"count\"? (known: profile, count, priority)",
    );
}

#[test]
fn a_cluster_that_cannot_be_meant_is_refused() {
    let check = |gpus: &str, expected: &str| check_document(&with_gpus(gpus), expected);
    check_document(
        "demand: [{profile: 1g.5gb}]",
        "gpus: names no GPU; list at least one, or say on the command line which model to use: --model A100-40GB",
    );
    check(
        "- {node: n0, index: 0, model: A100-40GB}\n- {node: n0, index: 0, model: A100-40GB}",
        "gpus[1].index: 0 of node \"n0\" is listed as gpus[0] already; list each GPU once",
    );
    check(
        "- {node: n0, index: 0, model: A100-40GB}\n- {node: n0, index: 1, model: A30-24GB}",
        "gpus[1].model: A30-24GB is not the model of gpus[0] on the same node, A100-40GB; a node has GPUs of one model",
    );
    check("- {node: '', index: 0, model: A100-40GB}", "gpus[0].node: \"\" is empty; write the node's name");
    let no_name = "is not a DNS-1123 name; write lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit";
    check(
        "- {node: \"n0\\nversion: v2 # ; reboot\", index: 0, model: A100-40GB}",
        &format!("gpus[0].node: \"n0\\nversion: v2 # ; reboot\" {no_name}"),
    );
    check("- {node: N0, index: 0, model: A100-40GB}", &format!("gpus[0].node: \"N0\" {no_name}"));
    check(
        "- {node: n0, index: 0, model: A100-40GB, changeCost: {node: 1000001}}",
        "gpus[0].changeCost.node: 1000001 slice-seconds are too many; write at most 1000000",
    );
    check(
        "- {node: n0, index: 0, model: A100-40GB}\nchangeCost: {instance: 4294967295}",
        "changeCost.instance: 4294967295 slice-seconds are too many; write at most 1000000",
    );
    check(
        "- {node: n0, index: 0, model: A100-40GB}\nactuator: nvml",
        "actuator: \"nvml\" is not known; write agent or mig-manager",
    );
    check(
        "- {node: n0, index: -1, model: A100-40GB}",
        "gpus[0].index: -1 is not a whole number from 0 to 65535",
    );
    check(
        "- {node: n0, index: 0, model: A100-40GB, instances: [{profile: 1g.5gb, start: 0, movable: true}]}",
        "gpus[0].instances[0].movable: true is set and there is no pod to move; name it with `pod`, or remove `movable`",
    );
    check(
        "- {node: n0, index: 0, model: A100-40GB, instances: [{profile: 1g.5gb, start: 0, pod: ''}]}",
        "gpus[0].instances[0].pod: \"\" is empty; write namespace/name, or remove it when nobody holds it",
    );
    let (code, _, err) = pack(&[], &with_gpus("- {node: n0, index: 0, model: A100}"));
    assert!(
        code == 2 && err.contains("stdin: gpus[0].model: unknown GPU model `A100`: known are A100-40GB,"),
        "{err}"
    );
}

#[test]
fn a_pod_that_cannot_be_meant_is_refused() {
    let check = |gpus: [&str; 2], expected: &str| {
        let gpu = |node: usize| {
            format!("- {{node: n{node}, index: 0, model: A100-40GB, instances: [{}]}}\n", gpus[node])
        };
        check_document(&with_gpus(&(gpu(0) + &gpu(1))), expected);
    };
    let first = |pod: &str| format!("{{profile: 1g.5gb, start: 0, pod: {pod}}}");
    check([&first("llm"), ""], "gpus[0].instances[0].pod: \"llm\" has no namespace; write namespace/name");
    check(
        [&first("a.b/llm"), ""],
        "gpus[0].instances[0].pod: \"a.b\" is not a DNS-1123 label; write up to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit",
    );
    check(
        [&first("'ai/x/y'"), ""],
        "gpus[0].instances[0].pod: \"x/y\" is not a DNS-1123 name; write lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit",
    );
    check(
        ["{profile: 1g.5gb, start: 0, pod: ai/a, movable: true, moveCost: 1000001}", ""],
        "gpus[0].instances[0].moveCost: 1000001 slice-seconds are too many; write at most 1000000",
    );
    check(
        [&first("ai/a"), &first("ai/a")],
        "gpus[1].instances[0].pod: \"ai/a\" holds gpus[0].instances[0] on node n0, and a pod runs on one node; correct the name",
    );
    let two = |movable: &str| {
        format!("{}, {{profile: 1g.5gb, start: 1, pod: ai/a, movable: {movable}}}", first("ai/a"))
    };
    check(
        [&two("true"), ""],
        "gpus[0].instances[1].pod: \"ai/a\" holds gpus[0].instances[0], too, and a pod with several instances is not moved; remove `movable` from both",
    );
    // One that stays where it is may have as many as it asked for.
    let gpu = format!("- {{node: n0, index: 0, model: A100-40GB, instances: [{}]}}", two("false"));
    assert_eq!(packed(&[], &with_gpus(&gpu))["summary"]["placed"], 1);
}

#[test]
fn what_is_no_document_is_refused() {
    check_document("", "is empty; `mig-scheduler pack --help` shows one");
    check_document("[1, 2]", "is not a mapping; begin with `demand:`");
    for broken in ["demand: [", "{\"demand\": [}", "\u{0}", "a: b: c"] {
        check_refused(&[], broken, "stdin: is not valid YAML");
    }
    check_refused(
        &["no/such.yaml"],
        "",
        "error: no/such.yaml: no such file; `mig-scheduler pack --help` shows one",
    );
}

#[test]
fn wrong_usage_is_refused() {
    let document = "demand: [{profile: 1g.5gb}]";
    check_refused(&["--gpus", "3"], document, "--model <MODEL>");
    check_refused(
        &["--model", "A100-40GB", "--gpus", "0"],
        document,
        &format!("0 is not in 1..={MAX_ITEMS}"),
    );
    check_refused(
        &["--model", "A100-40GB", "--gpus", "-4"],
        document,
        &format!("-4 is not in 1..={MAX_ITEMS}"),
    );
    check_refused(&["--model", "A101"], document, "unknown GPU model `A101`: known are A100-40GB");
    check_refused(&["--json", "--mig-parted"], document, "cannot be used with");
    check_refused(&["--model", "A30-24GB"], CLUSTER, "stdin: gpus: lists GPUs, and so does the command line");
}

/// Out of planning, by name, and the others are packed all the same.
#[test]
fn gpus_that_contradict_their_table_are_left_out() {
    let contradictions = [
        (
            "{profile: 3g.20gb, start: 4}, {profile: 1g.5gb, start: 5}",
            "1g.5gb@5 overlaps 3g.20gb@4 on A100-40GB",
        ),
        ("{profile: 2g.10gb, start: 6, pod: ai/a}", "2g.10gb@6 is not a placement of A100-40GB"),
        ("{profile: 1g.10gb+me, start: 0}", "A100-40GB has no profile `1g.10gb+me`"),
        ("{profile: 1g.5gb+me, start: 0}, {profile: 1g.5gb+me, start: 1}", "claim the same media engines"),
    ];
    for (instances, expected) in contradictions {
        let gpu = |index: u8, instances: &str| {
            format!("- {{node: n0, index: {index}, model: A100-40GB, instances: [{instances}]}}\n")
        };
        let document = with_gpus(&(gpu(0, instances) + &gpu(1, "")));
        let answer = packed(&[], &document);
        let excluded = &answer["excluded"][0];
        assert!(excluded["reason"].as_str().unwrap().contains(expected), "{answer:#}");
        assert_eq!((&excluded["node"], &excluded["index"]), (&json!("n0"), &json!(0)));
        let gpus = answer["gpus"].as_array().unwrap();
        assert_eq!((gpus.len(), &gpus[0]["index"]), (1, &json!(1)));
        assert_eq!(answer["summary"]["placed"], 1);
        let (code, text, _) = pack(&[], &document);
        assert!(code == 0 && text.contains("Left out of planning") && text.contains(expected), "{text}");
        let (code, out, err) = pack(&["--mig-parted"], &document);
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.contains("no node can be configured: n0: GPU 0 is left out of planning"), "{err}");
    }
}

#[test]
fn pods_without_a_place_are_listed_with_the_reason() {
    let demand = "{profile: 1g.6gb, count: 5}, {profile: 3g.20gb, count: 2}, {profile: 2g.12gb, priority: 1}";
    let answer = packed(&[], &with_demand(demand));
    assert_eq!((&answer["summary"]["placed"], &answer["summary"]["gap"]), (&json!(3), &json!(0.0)));
    let unplaced = answer["unplaced"].as_array().unwrap();
    let listed: Vec<_> = unplaced.iter().map(|u| (u["demand"].as_u64(), u["count"].as_u64())).collect();
    assert_eq!(listed, [(Some(0), Some(3)), (Some(1), Some(2))]);
    assert!(unplaced[0]["reason"].as_str().unwrap().starts_with("no room"), "{answer:#}");
    assert!(unplaced[1]["reason"].as_str().unwrap().starts_with("no GPU in planning offers"), "{answer:#}");
}

#[test]
fn the_fewest_gpus_of_a_model_are_found() {
    let check = |model: &str, demand: &str, gpus: usize| {
        let answer = packed(&["--model", model], &format!("demand: [{demand}]"));
        assert_eq!(answer["gpus"].as_array().unwrap().len(), gpus, "{answer:#}");
        assert_eq!(
            (&answer["summary"]["gpusUsed"], &answer["summary"]["gpusBound"]),
            (&json!(gpus), &json!(gpus))
        );
        assert_eq!(answer["unplaced"], json!([]));
    };
    check("A100-40GB", "{profile: 1g.5gb, count: 8}", 2);
    check("A100-40GB", "{profile: 3g.20gb, count: 3}, {profile: 4g.20gb}, {profile: 2g.10gb}", 3);
    check("NVIDIA-H100-80GB-HBM3", "{profile: 7g.79gb}, {profile: nvidia.com/mig-1g.10gb, count: 7}", 2);
    check("RTX-PRO-6000-96GB", "{profile: 1g.24gb, count: 5}", 2);
    check("A30-24GB", "", 0);
}

/// Instances by GPU, and pods by instance.
#[derive(Debug, Default, PartialEq)]
struct State {
    layouts: BTreeMap<(String, u64), Layout>,
    pods: BTreeMap<(String, u64, u64), String>,
}

fn placement(value: &Value) -> Placement {
    let start = value["start"].as_u64().unwrap() as u8;
    Placement::new(value["profile"].as_str().unwrap().parse().unwrap(), start)
}

fn gpu_of(value: &Value) -> (String, u64) {
    (value["node"].as_str().unwrap().to_owned(), value["index"].as_u64().unwrap())
}

fn seat(value: &Value) -> (String, u64, u64) {
    let (node, index) = gpu_of(value);
    (node, index, value["start"].as_u64().unwrap())
}

impl State {
    /// The GPUs of a request, or the wanted ones of an answer with the running pods.
    fn read(gpus: &Value) -> State {
        let mut state = State::default();
        for gpu in gpus.as_array().unwrap() {
            let at = gpu_of(gpu);
            let label = gpu["model"].as_str().unwrap();
            let model = GpuModel::by_name(label).or_else(|_| GpuModel::by_product_label(label)).unwrap();
            let instances = gpu["instances"].as_array().cloned().unwrap_or_default();
            for instance in &instances {
                if let Some(pod) = instance["pod"].as_str() {
                    let seat = (at.0.clone(), at.1, instance["start"].as_u64().unwrap());
                    state.pods.insert(seat, pod.to_owned());
                }
            }
            state.layouts.insert(at, Layout::new(model, instances.iter().map(placement)).unwrap());
        }
        state
    }

    /// Does one step, if it is possible.
    fn carry_out(&mut self, step: &Value) {
        let change = |state: &mut State, at: &Value, change: &dyn Fn(Layout) -> Layout| {
            assert!(!state.pods.contains_key(&seat(at)), "{step}: in use");
            let layout = state.layouts.remove(&gpu_of(at)).unwrap();
            state.layouts.insert(gpu_of(at), change(layout));
        };
        match step["action"].as_str().unwrap() {
            "create" => change(self, &step["at"], &|layout| layout.with(placement(&step["at"])).unwrap()),
            "destroy" => change(self, &step["at"], &|layout| layout.without(placement(&step["at"])).unwrap()),
            "move" => {
                self.bind(&step["to"], &step["pod"]);
                assert_eq!(self.pods.remove(&seat(&step["from"])).as_deref(), step["pod"].as_str(), "{step}");
            }
            "evict" => {
                assert_eq!(self.pods.remove(&seat(&step["from"])).as_deref(), step["pod"].as_str(), "{step}")
            }
            "bind" => self.bind(&step["to"], &step["pod"]),
            other => panic!("unknown step {other}"),
        }
    }

    fn bind(&mut self, at: &Value, pod: &Value) {
        assert!(self.layouts[&gpu_of(at)].placements().contains(&placement(at)), "{at}: no such instance");
        assert_eq!(self.pods.insert(seat(at), pod.as_str().unwrap().to_owned()), None, "{at}: taken");
    }
}

/// The steps lead from the request to the answer, and the undo back.
#[test]
fn the_steps_lead_there_and_back() {
    let answer = packed(&[], CLUSTER);
    assert_eq!(answer["summary"]["placed"], 2, "{answer:#}");
    let request: Value = serde_yaml::from_str(CLUSTER).unwrap();
    let (before, after) = (State::read(&request["gpus"]), State::read(&answer["gpus"]));
    let mut state = State::read(&request["gpus"]);
    answer["steps"].as_array().unwrap().iter().for_each(|step| state.carry_out(step));
    assert_eq!(state, after);
    // The pod that may not move is where it was; the other one still runs.
    assert_eq!(state.pods[&("n0".to_owned(), 0, 4)], "ai/b");
    assert_eq!(
        state.pods.values().map(String::as_str).collect::<BTreeSet<_>>(),
        BTreeSet::from(["ai/a", "ai/b", "ai/c"])
    );
    answer["undo"].as_array().unwrap().iter().for_each(|step| state.carry_out(step));
    assert_eq!(state, before);
    let torn = &answer["migManager"];
    assert!(torn.as_array().unwrap().iter().any(|gpu| gpu["pods"] == json!(["ai/a", "ai/b"])), "{torn}");
}

#[test]
fn a_fixed_gpu_keeps_its_layout() {
    let document = "
demand: [{profile: 3g.20gb}, {profile: 1g.5gb, count: 3}]
gpus: [{node: n0, index: 0, model: A100-40GB, fixed: true, instances: [{profile: 1g.5gb, start: 0}]}]";
    let answer = packed(&[], document);
    assert_eq!((&answer["summary"]["placed"], &answer["steps"]), (&json!(1), &json!([])));
}

/// mig-manager destroys all instances of a GPU whose counts change: the same demand as above is met by empty GPUs alone.
#[test]
fn with_mig_manager_no_gpu_that_holds_a_pod_is_cut_anew() {
    let document = format!("actuator: mig-manager\n{CLUSTER}");
    let answer = packed(&[], &document);
    assert_eq!((&answer["summary"]["placed"], &answer["steps"]), (&json!(0), &json!([])), "{answer:#}");
    let empty = "  - {node: n1, index: 0, model: A100-40GB, instances: [{profile: 1g.5gb, start: 6}]}\n";
    let answer = packed(&[], &(document + empty));
    assert_eq!(answer["summary"]["placed"], 2, "{answer:#}");
    assert_eq!(answer["migManager"], json!([{"node": "n1", "index": 0, "pods": []}]));
    // Eight slices of one GPU for a hundred seconds.
    assert_eq!(answer["summary"]["disruption"], 800);
}

/// A pod that moved before the layout changed would lose its instance.
#[test]
fn with_mig_manager_layouts_change_before_pods_move() {
    let gpu = |node: &str, instance: &str| {
        format!(
            "  - {{node: {node}, index: 0, model: A30-24GB, instances: [{{profile: 1g.6gb, start: 0{instance}}}]}}\n"
        )
    };
    let pod = |name: &str| format!(", pod: ai/{name}, movable: true, moveCost: 0");
    let gpus = gpu("n0", &pod("a")) + &gpu("n1", &pod("b")) + &gpu("n2", "");
    let answer = packed(&[], &format!("actuator: mig-manager\nlimits: {{consolidate: true}}\ngpus:\n{gpus}"));
    let actions = |steps: &str| -> Vec<String> {
        answer[steps]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["action"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(answer["summary"]["gpusUsed"], 1, "{answer:#}");
    assert_eq!(
        (actions("steps"), actions("undo")),
        (
            vec!["create".to_owned(), "move".to_owned(), "move".to_owned()],
            vec!["move".to_owned(), "move".to_owned(), "destroy".to_owned()],
        )
    );
}

/// What would destroy running pods' instances is not written, whoever the document says acts.
#[test]
fn a_mig_parted_configuration_leaves_gpus_with_pods_alone() {
    let (code, out, err) = pack(&["--mig-parted"], CLUSTER);
    assert_eq!((code, err.as_str()), (0, ""));
    let document: Value = serde_yaml::from_str(&out).unwrap();
    let specs = document["mig-configs"].as_object().unwrap().values().next().unwrap();
    assert_eq!(
        *specs,
        json!([
            {"devices": [0], "mig-enabled": true, "mig-devices": {"2g.10gb": 1, "3g.20gb": 1}},
            {"devices": [1], "mig-enabled": true, "mig-devices": {"1g.5gb": 2}},
        ])
    );
    check_refused(
        &["--mig-parted"],
        &format!("actuator: agent\n{CLUSTER}"),
        "stdin: actuator: agent reads no mig-parted configuration; write mig-manager or nothing here, or call pack without --mig-parted",
    );
    let (_, text, _) = pack(&[], CLUSTER);
    assert!(text.contains("running pods stop:") && text.contains("`actuator: mig-manager`"), "{text}");
}

/// The parts of the objective and the measures are counted from the same layouts.
#[test]
fn fragmentation_is_told_with_its_bound_and_by_published_measures() {
    let document = "
demand: []
recentDemand: [{profile: 3g.20gb, count: 2}, {profile: 1g.5gb, count: 1}]
gpus:
  - node: n0
    index: 0
    model: A100-40GB
    instances: [{profile: 1g.5gb, start: 0, pod: ai/a}, {profile: 1g.5gb, start: 4, pod: ai/b}]";
    let answer = packed(&[], document);
    let (summary, measured) = (&answer["summary"], &answer["fragmentation"][0]);
    assert_eq!(summary["fragmentation"], summary["fragmentationBound"], "{answer:#}");
    assert_eq!(summary["fragmentation"], measured["demandWeighted"]);
    assert_eq!(summary["disruptionBound"], 0);
    let told: Vec<_> = ["model", "gpus", "slices", "free", "stranded"]
        .into_iter()
        .map(|name| measured[name].clone())
        .collect();
    assert_eq!(told, [json!("A100-40GB"), json!(1), json!(8), json!(6), json!(0)]);
    assert_eq!(measured["physicalShare"], 0.5);
    assert_eq!(measured["blocked"], json!(["3g.20gb", "4g.20gb"]));
    let (_, text, _) = pack(&[], document);
    assert!(text.contains("Blocked        enough slices are free for one more"), "{text}");
}

#[test]
fn the_order_of_recent_demand_makes_no_difference() {
    let profiles = ["4g.20gb", "1g.5gb", "3g.20gb", "2g.10gb"];
    let answer = |order: [usize; 4]| {
        let recent = order.map(|at| format!("{{profile: {}, count: 100000}}", profiles[at])).join(", ");
        packed(
            &[],
            &format!("recentDemand: [{recent}]\n{}", with_gpus("- {node: n0, index: 0, model: A100-40GB}")),
        )
    };
    assert_eq!(answer([0, 1, 2, 3]), answer([3, 2, 1, 0]));
}

#[test]
fn no_demand_needs_no_gpu() {
    for arguments in [&["--model", "A100-40GB"][..], &["--model", "A100-40GB", "--gpus", "3"]] {
        let (code, out, err) = pack(arguments, "demand: [{profile: 1g.5gb, count: 0}]");
        assert_eq!(
            (code, out.as_str(), err.as_str()),
            (0, "No GPU is needed: the demand names no pod.\n", "")
        );
    }
}

#[test]
fn priorities_are_told_one_by_one() {
    let demand = "{profile: 4g.24gb, priority: 2}, {profile: 1g.6gb, count: 4, priority: 1}";
    let summary = &packed(&[], &with_demand(demand))["summary"];
    let expected = json!([
        {"priority": 2, "pods": 1, "placed": 1, "bound": 1},
        {"priority": 1, "pods": 4, "placed": 0, "bound": 0},
    ]);
    assert_eq!((&summary["priorities"], &summary["gap"]), (&expected, &json!(0.0)), "{summary:#}");
}

#[test]
fn json_and_yaml_are_read_alike() {
    let value: Value = serde_yaml::from_str(CLUSTER).unwrap();
    assert_eq!(packed(&[], CLUSTER), packed(&["-"], &value.to_string()));
}

#[test]
fn the_document_in_the_help_is_packed() {
    let (_, help, _) = pack(&["--help"], "");
    let after = help.split_once("every field").unwrap().1;
    let lines = after.lines().skip(1).take_while(|line| line.starts_with("  "));
    let document: Vec<&str> = lines.map(|line| &line[2..]).collect();
    let answer = packed(&[], &document.join("\n"));
    assert_eq!(answer["summary"]["pods"], 11, "{answer:#}");
}

#[test]
fn the_schema_names_every_field() {
    let (code, out, _) = pack(&["--schema"], "");
    assert_eq!(code, 0);
    let schema: Value = serde_json::from_str(&out).unwrap();
    let fields: Vec<_> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["actuator", "changeCost", "demand", "gpus", "limits", "recentDemand"]);
    assert_eq!(schema["additionalProperties"], false);
}

/// mig-parted's form: every GPU of each node once, under the name that the comments give to the node.
#[test]
fn the_mig_parted_configuration_names_every_gpu() {
    let (code, out, err) = pack(
        &["--model", "A100-40GB", "--gpus", "20", "--mig-parted"],
        "demand: [{profile: 3g.20gb, count: 23}]",
    );
    assert_eq!((code, err.as_str()), (0, ""));
    let document: Value = serde_yaml::from_str(&out).unwrap();
    assert_eq!(document["version"], "v1");
    let configs = document["mig-configs"].as_object().unwrap();
    let (mut nodes, mut instances) = (0, 0);
    for line in out.lines().filter_map(|line| line.strip_prefix("# kubectl label --overwrite node ")) {
        let (names, config) = line.split_once(" nvidia.com/mig.config=").unwrap();
        for name in names.split(' ') {
            nodes += 1;
            let specs = configs[config].as_array().unwrap();
            let mut devices: Vec<_> =
                specs.iter().flat_map(|spec| spec["devices"].as_array().unwrap().clone()).collect();
            devices.sort_by_key(Value::as_u64);
            let gpus = if name == "n2" { 4 } else { 8 };
            assert_eq!(devices, (0..gpus).map(Value::from).collect::<Vec<_>>(), "{name}");
            for spec in specs {
                assert_eq!(spec.as_object().unwrap().len(), 3);
                let each: u64 =
                    spec["mig-devices"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
                instances += each * spec["devices"].as_array().unwrap().len() as u64;
            }
        }
    }
    assert_eq!((nodes, instances), (3, 23));
    let gap = with_gpus("- {node: n0, index: 1, model: A100-40GB}");
    let (code, _, err) = pack(&["--mig-parted"], &gap);
    assert!(code == 1 && err.contains("n0: GPU 0 is not listed"), "{err}");
}

/// What people read: bounded in both directions, whatever the size.
#[test]
fn ten_thousand_gpus_fit_on_some_screens() {
    let demand = "demand: [{profile: 3g.20gb, count: 7001}, {profile: 1g.5gb, count: 30000}, {profile: 7g.40gb, count: 900}]";
    let (code, text, err) = pack(&["--model", "A100-40GB", "--gpus", "10000"], demand);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(text.lines().count() < 120, "{}", text.lines().count());
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 100, "{widest}: {text}");
    assert!(text.contains("Pods placed    37,901 of 37,901"), "{text}");
}
