//! Small traces written by hand: what is read from them and what is refused.

use std::fs;

use super::*;

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,T4\nn1,32000,1024,0,\n";
const HEADER: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n";

/// Reads a trace with these pod rows, and hands over what came of it.
fn reading(nodes: &str, rows: &str) -> Result<Scenario, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(NODES_FILE), nodes).unwrap();
    let pods = if rows.starts_with("name") { rows.to_owned() } else { format!("{HEADER}{rows}") };
    fs::write(folder.path().join(PODS_FILE), pods).unwrap();
    let by_file = read(&folder.path().join(PODS_FILE)).map(|scenario| scenario.pods.len());
    let read = read(folder.path());
    assert_eq!(by_file.ok(), read.as_ref().ok().map(|scenario| scenario.pods.len()));
    read.map_err(|error| error.to_string())
}

#[test]
fn pods_become_profiles() {
    let check = |gpus: u64, milli: u64, expected: &str| {
        let row = format!("p,1000,2048,{gpus},{milli},,LS,Running,5,20,7\n");
        let scenario = reading(NODES, &row).unwrap();
        assert_eq!(scenario.classes[scenario.pods[0].class].name, expected, "{gpus} x {milli}");
    };
    for (milli, expected) in [
        (1, "1g.5gb"),
        (142, "1g.5gb"),
        (143, "2g.10gb"),
        (285, "2g.10gb"),
        (286, "3g.20gb"),
        (428, "3g.20gb"),
        (429, "4g.20gb"),
        (571, "4g.20gb"),
        (572, "7g.40gb"),
        (1_000, "7g.40gb"),
    ] {
        check(1, milli, expected);
    }
    check(8, 1_000, "8 x 7g.40gb");
    check(0, 0, "no GPU");
}

#[test]
fn times_machines_and_specs_are_kept() {
    let rows = "late,1000,2048,1,500,T4|A10,LS,Running,9,20,\nearly,1000,2048,0,0,,BE,Running,5,20,7\n";
    let scenario = reading(NODES, rows).unwrap();
    let [early, late] = scenario.pods.as_slice() else { panic!("two pods") };
    assert_eq!(
        (early.pod.id.name.as_ref(), early.pod.created, early.lifetime.as_secs()),
        ("early", Time::from_secs(5), 13)
    );
    assert_eq!(
        (late.pod.created, late.lifetime.as_secs()),
        (Time::from_secs(9), 11),
        "lives as long as it existed"
    );
    assert_eq!((scenario.end, scenario.gpus()), (Time::from_secs(21), 2));
    let allowed: Vec<bool> = scenario
        .on_demand()
        .iter()
        .map(|start| late.pod.spec.selector.matches(start.node.name.as_str(), &start.node.labels))
        .collect();
    assert_eq!(allowed, [true, false]);
    assert_eq!(early.pod.spec.requests.memory, 2 << 30);
}

#[test]
fn bad_rows_are_named_with_file_line_column_and_value() {
    let check = |rows: &str, expected: &[&str]| {
        let error = reading(NODES, rows).unwrap_err();
        expected.iter().for_each(|part| assert!(error.contains(part), "`{part}` is not in: {error}"));
    };
    let good = "a,1000,2048,1,500,,LS,Running,5,20,7\n";
    let file = "openb_pod_list_default.csv, line 3";
    check(
        &format!("{good}b,x,2048,1,500,,LS,Running,5,20,7\n"),
        &[file, "`cpu_milli`", "`x` is not a whole number"],
    );
    check(&format!("{good}b,-1,2048,1,500,,LS,Running,5,20,7\n"), &[file, "`-1`"]);
    check(&format!("{good}b,1,2048,1,1001,,LS,Running,5,20,7\n"), &[file, "`gpu_milli`", "0 to 1000"]);
    check(&format!("{good}b,1,2048,2,500,,LS,Running,5,20,7\n"), &[file, "`gpu_milli`", "must be 1000"]);
    check(&format!("{good}b,1,2048,1,0,,LS,Running,5,20,7\n"), &[file, "must be above 0"]);
    check(&format!("{good}b,1,2048,1,500,,LS,Running,5,,7\n"), &[file, "`deletion_time`", "`` is not"]);
    check(&format!("{good}b,1,2048,1,500,,LS,Running,5,6,7\n"), &[file, "`deletion_time`", "before"]);
    check(&format!("{good}{good}"), &[file, "`name`", "`a` stands in an earlier row"]);
    check(&format!("{good}b,1\n"), &["cannot read", "line: 3"]);
    check("", &["has no rows"]);
    check(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nb,1,1,1,1000\n",
        &["no column `creation_time`", "multigpu50"],
    );
    let error = reading("sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,1,\n", good).unwrap_err();
    assert!(error.contains("line 2, column `model`: `` must not be empty"), "{error}");
    let error = read(Path::new("no/such/folder")).unwrap_err().to_string();
    assert!(error.contains("cannot read") && error.contains(NODES_FILE), "{error}");
}
