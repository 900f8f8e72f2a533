//! The configuration file: what is accepted, and the exact line for what is refused.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mig_scheduler::config::{Config, Prometheus, PrometheusAuth, schema};
use proptest::prelude::*;
use proptest::sample::Index;

const HEAD: &str = "apiVersion: mig-scheduler.io/v1alpha1\nkind: MigSchedulerConfiguration\n";
const DEFAULT_FILE: &str = include_str!("../../scheduler-config/scheduler-config.yaml");

fn scheduler_config() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scheduler-config")
}

/// The configuration from a document whose body is `body`.
fn load(body: &str) -> Config {
    Config::from_yaml(&format!("{HEAD}{body}")).unwrap()
}

/// Asserts the line for a document that is refused.
fn check_document(document: &str, expected: &str) {
    assert_eq!(Config::from_yaml(document).unwrap_err().to_string(), expected, "for {document:?}");
}

/// Asserts the line for a body that is refused.
fn check(body: &str, expected: &str) {
    check_document(&format!("{HEAD}{body}"), expected);
}

/// Asserts the line for a file that is refused.
fn check_file(content: &[u8], expected: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.yaml");
    std::fs::write(&path, content).unwrap();
    let line = Config::load(&path).unwrap_err().to_string();
    assert_eq!(line, format!("{}: {expected}", path.display()));
}

#[test]
fn the_default_file_and_an_empty_body_are_the_default() {
    assert_eq!(Config::from_yaml(DEFAULT_FILE).unwrap(), Config::default());
    assert_eq!(load(""), Config::default());
    assert_eq!(load("leaderElection:\nbindLane: {}\nprofiles: [{}]\n"), Config::default());
}

#[test]
fn every_shipped_file_loads() {
    let dir = scheduler_config();
    let examples = std::fs::read_dir(dir.join("examples")).unwrap().map(|entry| entry.unwrap().path());
    for path in examples.chain([dir.join("scheduler-config.yaml")]) {
        Config::load(&path).unwrap();
    }
}

#[test]
fn the_kustomization_ships_the_default_file() {
    let text = std::fs::read_to_string(scheduler_config().join("kustomization.yaml")).unwrap();
    let document: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(document["configMapGenerator"][0]["files"][0], "scheduler-config.yaml");
}

#[test]
fn the_default_file_writes_every_field_out() {
    let keys = |text: &str| serde_yaml::from_str::<serde_yaml::Value>(text).unwrap();
    assert_eq!(keys(DEFAULT_FILE), keys(&Config::default().to_yaml().unwrap()));
}

#[test]
fn what_is_printed_loads_as_the_same() {
    let odd = load(
        "profiles: [{schedulerName: gpu.example}]\nleaderElection: {leaderElect: false, leaseDuration: 1m1s, \
         retryPeriod: 1.5s}\nclientConnection: {kubeconfig: /k, requestTimeout: 12ms}\npodInitialBackoffSeconds: 3\n\
         eventLane: {capacity: 1}\nprometheus: {url: 'https://p', tls: {caFile: /a, certFile: /b, keyFile: /c}, basicAuth: {username: u, \
         passwordFile: /p}, lookBack: 72h, queries: {latency: y}}\nforecasting: {enabled: false, modelFile: /m, updateInterval: 0s}\nhttp: {bindAddress: ''}\nlogging: {format: json, level: 'off,kube=info'}\n",
    );
    for config in [Config::default(), odd] {
        assert_eq!(Config::from_yaml(&config.to_yaml().unwrap()).unwrap(), config);
    }
}

#[test]
fn the_checked_in_schema_is_current() {
    let stored = std::fs::read_to_string(scheduler_config().join("schema.json")).unwrap();
    let current = schema();
    assert!(
        stored == current,
        "scheduler-config/schema.json is out of date; run `mig-scheduler config schema > scheduler-config/schema.json`"
    );
}

#[test]
fn durations_are_those_of_kubernetes() {
    let timeout = |text: &str| {
        let body = format!(
            "leaderElection: {{leaseDuration: 1h}}\nclientConnection: {{requestTimeout: \"{text}\"}}\n"
        );
        Config::from_yaml(&format!("{HEAD}{body}"))
            .ok()
            .map(|config| config.client_connection.request_timeout)
    };
    let known = [
        ("15s", 15_000_000_000),
        ("1m30s", 90_000_000_000),
        ("500ms", 500_000_000),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("5.s", 5_000_000_000),
        ("0.1h", 360_000_000_000),
        ("1us2µs3μs4ns", 6_004),
        ("1.0000000000000000001s", 1_000_000_000),
        ("1.5ns", 1),
    ];
    for (text, nanos) in known {
        assert_eq!(timeout(text), Some(Duration::from_nanos(nanos)), "{text}");
    }
    let refused = [
        "",
        "15",
        "s",
        ".s",
        "1.2.3s",
        "-1s",
        "+1s",
        " 1s",
        "1s ",
        "1 s",
        "1S",
        "1d",
        "1m30",
        "1e3s",
        "9999999999999h",
        "١s",
    ];
    for text in refused {
        assert_eq!(timeout(text), None, "{text}");
    }
}

#[test]
fn an_address_or_none() {
    assert_eq!(load("http: {bindAddress: ''}").http.bind_address, None);
    assert_eq!(load("http: {bindAddress: '[::1]:1'}").http.bind_address, Some("[::1]:1".parse().unwrap()));
}

#[test]
fn log_levels() {
    for level in ["off", "INFO", "info,kube=warn", "mig_scheduler::shell=trace", "warn,[bind{pod=x}]=debug"] {
        assert_eq!(load(&format!("logging: {{level: \"{level}\"}}")).logging.level, level);
    }
}

#[test]
fn wrong_names() {
    check(
        "leaderElection: {leasDuration: 15s}",
        "leaderElection.leasDuration: unknown field; did you mean \"leaseDuration\"? (known: leaderElect, \
         leaseDuration, renewDeadline, retryPeriod, resourceName, resourceNamespace)",
    );
    check(
        "profiles: [{schedularName: x}]",
        "profiles[0].schedularName: unknown field; did you mean \"schedulerName\"? (known: schedulerName)",
    );
    check("http: {\"a`, expected `b`\": 1}", "http.a`, expected `b`: unknown field (known: bindAddress)");
    check("http: {\"a\\nb\": 1}", "http.a\\nb: unknown field (known: bindAddress)");
    check("http: {5: x}", "http: has a key that is not a text; write field names only");
}

#[test]
fn wrong_types() {
    let duration = r#"is not a duration; write for example "15s" or "1m30s""#;
    check(
        "leaderElection: {leaseDuration: 15x}",
        &format!("leaderElection.leaseDuration: \"15x\" {duration}"),
    );
    check("leaderElection: {leaseDuration: 15}", &format!("leaderElection.leaseDuration: 15 {duration}"));
    check("leaderElection: {leaderElect: 'no'}", "leaderElection.leaderElect: \"no\" is not true or false");
    check(
        "leaderElection: []",
        "leaderElection: a list is not a mapping of fields; indent them below the key, or remove it",
    );
    check("profiles: {schedulerName: x}", "profiles: a mapping is not a list; begin each entry with `- `");
    check("http: {bindAddress: }", "http.bindAddress: an empty value is not a text; put it in quotes");
    check("profiles: [{schedulerName: 5}]", "profiles[0].schedulerName: 5 is not a text; put it in quotes");
    check(
        "bindLane: {concurrency: -1}",
        "bindLane.concurrency: -1 is not a whole number from 0 to 4294967295",
    );
    check("logging: {format: xml}", "logging.format: \"xml\" is not known; write text or json");
    check("logging: {format: 1}", "logging.format: 1 is not a text; put it in quotes");
}

#[test]
fn where_usage_is_read_from() {
    let prometheus = load(
        "prometheus: {url: 'https://p:9090/x', bearerTokenFile: /t, step: 15s, queries: {memoryUsed: ''}}",
    )
    .prometheus;
    assert_eq!(prometheus.url.as_deref(), Some("https://p:9090/x"));
    assert_eq!(prometheus.auth, PrometheusAuth::Bearer { token_file: "/t".to_owned() });
    assert_eq!((prometheus.step_seconds, prometheus.queries.memory_used), (15, None));
    let body = "prometheus: {basicAuth: {username: u, passwordFile: /p}, url: http://p}";
    let basic = PrometheusAuth::Basic { username: "u".to_owned(), password_file: "/p".to_owned() };
    assert_eq!(load(body).prometheus.auth, basic);
    assert_eq!(load("forecasting: {updateInterval: 0s}").forecasting.update_interval, None);
    assert_eq!(Prometheus::at("http://p"), Ok(load("prometheus: {url: http://p}").prometheus));
}

#[test]
fn wrong_usage() {
    let check = |body: &str, expected: &str| {
        check(&format!("prometheus: {{{body}}}"), &format!("prometheus.{expected}"))
    };
    let write = r#"write for example "http://prometheus.monitoring:9090""#;
    check("url: prometheus", &format!(r#"url: "prometheus" is not a URL; {write}, or "" for none"#));
    check("url: 'ftp://p'", &format!(r#"url: "ftp://p" is not an http or https URL; {write}"#));
    check(
        "url: 'http://u:secret@p'",
        "url: it holds a user or password; write them into prometheus.basicAuth",
    );
    check(
        "url: 'http://p/?a=b'",
        r#"url: "http://p/?a=b" has a query or fragment; write it without what follows '?' or '#'"#,
    );
    check("requestTimeout: 0s", "requestTimeout: 0s is out of range; write 1ms to 5m");
    check(
        "url: 'http://p', tls: {caFile: /ca}",
        r#"tls.caFile: "/ca" is for https only; write an https URL, or remove it"#,
    );
    check("tls: {certFile: /c}", r#"tls.keyFile: "" is missing; write the key of "/c""#);
    check("tls: {keyFile: /k}", r#"tls.certFile: "" is missing; write the certificate of "/k""#);
    check(
        "bearerTokenFile: /t, basicAuth: {username: u, passwordFile: /p}",
        r#"basicAuth.username: "u" is given beside bearerTokenFile; keep one of the two"#,
    );
    check(
        "basicAuth: {passwordFile: /p}",
        r#"basicAuth.username: "" is missing; write the name for passwordFile"#,
    );
    check(
        "basicAuth: {username: u}",
        r#"basicAuth.passwordFile: "" is missing; write the file with the password"#,
    );
    check(
        "basicAuth: {username: 'a:b', passwordFile: /p}",
        r#"basicAuth.username: "a:b" has a ':' or control character; write it without"#,
    );
    check("step: 5s", "step: 5s is out of range; write 15s to 5m");
    check("step: 15.5s", "step: 15s500ms is not a number of whole seconds; write for example 60s");
    check("lookBack: 1h", "lookBack: 1h is out of range; write 24h to 72h");
    check("staleness: 1m59s", "staleness: 1m59s is out of range; write 2m to 1h");
    check(
        "queries: {activity: ' '}",
        r#"queries.activity: " " is empty; write a query for the activity of each GPU or MIG instance"#,
    );
    check(
        "queries: {latency: 'rate(x[$__interval])'}",
        r#"queries.latency: "rate(x[$__interval])" has a variable of Grafana's; write $step for the step"#,
    );
    check(
        "querys: {}",
        r#"querys: unknown field; did you mean "queries"? (known: url, requestTimeout, tls, bearerTokenFile, basicAuth, step, lookBack, staleness, queries)"#,
    );
}

#[test]
fn wrong_forecasting() {
    let check = |body: &str, expected: &str| {
        check(&format!("forecasting: {{{body}}}"), &format!("forecasting.{expected}"))
    };
    check("pollInterval: 6m", "pollInterval: 6m is out of range; write 1s to 5m");
    check("updateInterval: 5s", "updateInterval: 5s is out of range; write 1m to 24h, or 0s for never");
    check(
        "configMap: A_b",
        r#"configMap: "A_b" is not a DNS-1123 name; write lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"#,
    );
    check("enabled: 1", "enabled: 1 is not true or false");
}

#[test]
fn wrong_values() {
    let lease = "leaderElection.leaseDuration";
    check("leaderElection: {leaseDuration: 2h}", &format!("{lease}: 2h is too long; write at most 1h"));
    for (value, shown) in [("0s", "0s"), ("15.5s", "15s500ms")] {
        check(
            &format!("leaderElection: {{leaseDuration: {value}}}"),
            &format!("{lease}: {shown} is not a number of whole seconds; write for example 15s"),
        );
    }
    check(
        "leaderElection: {renewDeadline: 15s}",
        "leaderElection.renewDeadline: 15s is too long; write less than leaseDuration, 15s",
    );
    check(
        "leaderElection: {renewDeadline: 2400ms}",
        "leaderElection.retryPeriod: 2s is too long; 1.2 times it must be less than renewDeadline, 2s400ms",
    );
    check(
        "leaderElection: {retryPeriod: 0s}",
        "leaderElection.retryPeriod: 0s is too short; write more than zero",
    );
    check(
        "leaderElection: {resourceNamespace: a.b}",
        "leaderElection.resourceNamespace: \"a.b\" is not a DNS-1123 label; write up to 63 lower-case letters, digits \
         and '-', beginning and ending with a letter or digit",
    );
    check(
        "clientConnection: {requestTimeout: 5s}",
        "clientConnection.requestTimeout: 5s is too long; write less than leaseDuration - renewDeadline, 5s",
    );
    check(
        "clientConnection: {requestTimeout: 0s}",
        "clientConnection.requestTimeout: 0s is too short; write more than zero",
    );
    check("podInitialBackoffSeconds: 0", "podInitialBackoffSeconds: 0 is too small; write at least 1");
    check(
        "podInitialBackoffSeconds: 11",
        "podMaxBackoffSeconds: 10 is too small; write at least podInitialBackoffSeconds, 11",
    );
    check("statusLane: {concurrency: 1025}", "statusLane.concurrency: 1025 is out of range; write 1 to 1024");
    check("eventLane: {capacity: 0}", "eventLane.capacity: 0 is out of range; write 1 to 1048576");
    check(
        "http: {bindAddress: ':10261'}",
        "http.bindAddress: \":10261\" is not an IP address and port; write for example \"0.0.0.0:10261\", or \"\" for \
         no server",
    );
    check("profiles: []", "profiles: has 0 entries; write exactly one, with its schedulerName");
    check("profiles: [{}, {}]", "profiles: has 2 entries; write exactly one, with its schedulerName");
    let dotted = ["a".repeat(32), "b".repeat(31)].join(".");
    check(
        &format!("profiles: [{{schedulerName: {dotted}}}]"),
        &format!("profiles[0].schedulerName: \"{dotted}\" is too long; write at most 63 characters"),
    );
    let long = "a".repeat(64);
    for name in ["", "-a", "a-", "A", "a_b", "a..b", &long] {
        check(
            &format!("profiles: [{{schedulerName: \"{name}\"}}]"),
            &format!(
                "profiles[0].schedulerName: \"{name}\" is not a DNS-1123 name; write lower-case letters, digits, '-' \
                 and '.', beginning and ending with a letter or digit"
            ),
        );
    }
    for level in ["", "inf", "info, kube=warn", "info,", "kube=wrn", "=info", " é=info"] {
        check(
            &format!("logging: {{level: \"{level}\"}}"),
            &format!(
                "logging.level: {level:?} is not a log level; write error, warn, info, debug, trace or off, or for \
                 example \"info,kube=warn\""
            ),
        );
    }
}

#[test]
fn wrong_documents() {
    let default = "print a complete one with `mig-scheduler config default`";
    check_document("", &format!("is empty; {default}"));
    check_document("# nothing\n", &format!("is empty; {default}"));
    check_document("text", "is not a mapping; begin with `apiVersion: mig-scheduler.io/v1alpha1`");
    check_document(
        "{}",
        "missing field `apiVersion`; begin with \"apiVersion: mig-scheduler.io/v1alpha1\" and \"kind: \
         MigSchedulerConfiguration\"",
    );
    check_document(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n",
        "apiVersion: \"kubescheduler.config.k8s.io/v1\" is not known; write mig-scheduler.io/v1alpha1",
    );
    check_document(
        "plugins: {}\napiVersion: mig-scheduler.io/v1alpha1\nkind: KubeSchedulerConfiguration\n",
        "kind: \"KubeSchedulerConfiguration\" is not known; write MigSchedulerConfiguration",
    );
    check("---\n", "holds several YAML documents; keep one, without a second `---`");
    check("http: {}\nhttp: {}\n", "the key \"http\" is written twice; keep one");
    check(
        "bindLane:\n  concurrency: 1\n  concurrency: 2\n",
        "bindLane: the key \"concurrency\" is written twice; keep one",
    );
    check("http: *no\n", "is not valid YAML: unknown anchor at line 3 column 7");
}

#[test]
fn wrong_files() {
    check_file(b"\xff\xfe", "is not UTF-8 text, from byte 0 on; save it as UTF-8");
    check_file(&vec![b'#'; (1 << 20) + 1], "is larger than 1 MiB; this is not a configuration file");
    let dir = tempfile::tempdir().unwrap();
    let line = Config::load(dir.path()).unwrap_err().to_string();
    assert_eq!(line, format!("{}: is a directory; name the file in it", dir.path().display()));
}

#[test]
fn a_byte_order_mark_and_foreign_line_ends_are_accepted() {
    for text in [format!("\u{feff}{HEAD}"), HEAD.replace('\n', "\r\n")] {
        assert_eq!(Config::from_yaml(&text).unwrap(), Config::default());
    }
}

/// Loads the bytes as a file: whatever they are, the outcome is a configuration or one short line.
fn survives(bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.yaml");
    std::fs::write(&path, bytes).unwrap();
    if let Err(error) = Config::load(&path) {
        let line = error.to_string();
        assert!(!line.contains(char::is_control) && line.chars().count() < 4000, "{line:?}");
    }
}

/// Pieces that mean something in YAML or in the file, so that mutations reach beyond the parser.
const PIECES: [&str; 16] = [
    "\n", ": ", "- ", "---\n", "&a ", "*a", "<<: ", "!t ", "{", "]", "\"", "\t", "null", "-1", "15s",
    "\u{feff}",
];

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survives(&bytes);
    }

    #[test]
    fn random_mutations_of_the_default_file_never_panic(
        edits in prop::collection::vec((any::<Index>(), 0_usize..40, any::<Index>()), 1..8)
    ) {
        let mut bytes = DEFAULT_FILE.as_bytes().to_vec();
        for (at, removed, piece) in edits {
            let start = at.index(bytes.len() + 1);
            let end = bytes.len().min(start + removed);
            bytes.splice(start..end, piece.get(&PIECES).bytes());
        }
        survives(&bytes);
    }

    #[test]
    fn random_levels_never_panic(level in "\\PC{0,30}") {
        let quoted = serde_json::to_string(&level).unwrap();
        survives(format!("{HEAD}logging: {{level: {quoted}}}\n").as_bytes());
    }
}
