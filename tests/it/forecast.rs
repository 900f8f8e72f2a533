//! `forecast` as a user calls it: results on stdout, what is wrong with the input on stderr.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Exit code, stdout and stderr of `forecast` with these arguments.
fn call(arguments: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_mig-scheduler")).arg("forecast").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn json(arguments: &[&str]) -> Value {
    let (code, out, err) = call(arguments);
    assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
    serde_json::from_str(&out).unwrap()
}

/// Two days of two GPUs in per cent, minute by minute: one swings with a period of two hours, one alternates about a level.
fn write_usage(file: &Path) {
    let mut text = "time,series,value,group\n".to_owned();
    for minute in 0..2_880 {
        let swing = ((minute % 120) as f32 - 60.0).abs();
        let alternating = if minute % 2 == 0 { 85.0 } else { 91.0 };
        let time = 1_736_121_600 + minute * 60;
        text +=
            &format!("{time},swinging,{swing},gpu-activity\n{time},alternating,{alternating},gpu-activity\n");
    }
    std::fs::write(file, text).unwrap();
}

fn with_usage(run: impl Fn(&str, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("usage.csv");
    write_usage(&file);
    run(file.to_str().unwrap(), dir.path());
}

#[test]
fn a_backtest_scores_every_model_and_what_they_decide() {
    with_usage(|csv, dir| {
        let page = dir.join("page.html");
        let arguments = ["backtest", "--csv", csv, "--json", "--html", page.to_str().unwrap()];
        let report = json(&arguments);
        let mse = |name: &str| {
            let models = report["models"].as_array().unwrap();
            models.iter().find(|model| model["model"] == name).unwrap()["mse"].as_f64().unwrap()
        };
        assert!(mse("gated") < 0.5 * mse("persistence"), "{report}");
        let regret = |name: &str| {
            let decisions = report["decisions"].as_array().unwrap();
            let decision = decisions.iter().find(|row| row["forecast"] == name).unwrap();
            decision["regret_slice_minutes"].as_f64().unwrap()
        };
        assert!(regret("none") > regret("gated") && regret("oracle") == 0.0, "{report}");
        let page = std::fs::read_to_string(&page).unwrap();
        assert_eq!((page.matches("<svg").count(), page.contains("<script")), (2, false));
        assert_eq!(report, json(&arguments), "the same input gives the same output");
    });
}

#[test]
fn tables_are_for_people() {
    with_usage(|csv, _| {
        let (code, out, err) = call(&["backtest", "--csv", csv]);
        assert_eq!((code, err.as_str()), (0, ""));
        for part in ["model", "MSE", "MASE", "seasonal-linear", "gated", "split P / R", "oracle"] {
            assert!(out.contains(part), "{part}: {out}");
        }
        let (code, out, _) = call(&["predict", "--csv", csv]);
        assert!(code == 0 && out.starts_with("the next 10 minutes\n") && out.contains("trusted"), "{out}");
    });
}

#[test]
fn predictions_say_whom_to_trust() {
    with_usage(|csv, _| {
        let predictions = json(&["predict", "--csv", csv, "--json"]);
        let alternating = &predictions[0];
        assert_eq!(
            (&alternating["series"], &alternating["trust"]),
            (&"alternating".into(), &"trusted".into())
        );
        let first = alternating["mean"][0].as_f64().unwrap();
        assert!((first - 85.0).abs() < 3.0, "{predictions}");
        let late = 1_736_121_600 + 2_880 * 60 + 3_600;
        let stale = json(&["predict", "--csv", csv, "--json", "--now", &late.to_string()]);
        assert_eq!(stale[0]["trust"]["notTrusted"]["stale"]["ageSeconds"], 3_660);
    });
}

#[test]
fn bad_input_is_named_with_its_fix() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("usage.csv");
    let path = file.to_str().unwrap();
    let check = |text: &str, expected: &str| {
        std::fs::write(&file, text).unwrap();
        for command in ["backtest", "predict"] {
            let (code, out, err) = call(&[command, "--csv", path]);
            assert_eq!((code, out.as_str()), (1, ""), "{text}");
            assert!(
                err.starts_with("error: ") && err.lines().count() == 1 && err.contains(expected),
                "{err}"
            );
        }
    };
    check("time,name,value\n", "has no column `series`");
    check(
        "time,series,value\n0,a,many\n",
        "line 2, column `value`: `many` is not a number; leave a gap empty",
    );
    check("time,series,value\n0,a,1\n60,a,2\n", "no series is long enough");
    check("time,series,value\n0,a,\n", "has no rows with a value");
    let (code, _, err) = call(&["backtest", "--csv", path, "--group", "gpu"]);
    assert!(code == 1 && err.contains("has no rows with a value"), "{err}");
    std::fs::write(&file, "time,series,value\n0,a,1\n").unwrap();
    let (code, _, err) = call(&["predict", "--csv", path, "--group", "gpu"]);
    assert!(
        code == 1 && err.contains("--group gpu: there is no such series; the groups are series"),
        "{err}"
    );
    let (code, _, err) = call(&["backtest", "--csv", "no/such.csv"]);
    assert!(code == 1 && err.contains("cannot read no/such.csv"), "{err}");
    let (code, _, err) = call(&["backtest", "--step", "10"]);
    assert!(code == 1 && err.contains("step is 10; it must be from 15 to 86400 seconds"), "{err}");
    let (code, _, err) = call(&["backtest", "--step", "300"]);
    assert!(code == 1 && err.contains("generated weeks have a step of 60 s"), "{err}");
}

#[test]
fn wrong_usage_ends_with_2() {
    for wrong in [
        &["backtest", "--tested", "1"][..],
        &["backtest", "--weeks", "1"],
        &["backtest", "--csv"],
        &["predict", "--csv", "a.csv", "--weeks", "3"],
        &["predict", "--csv", "a.csv", "--prometheus", "http://localhost:9090"],
        &["predict", "--prometheus", "http://localhost:9090", "--hours", "12"],
        &["predict", "--prometheus", "localhost"],
        &["train"],
        &["train", "--out", "x", "--batch", "0"],
        &[],
    ] {
        assert_eq!(call(wrong).0, 2, "{wrong:?}");
    }
}

#[test]
fn a_prometheus_that_is_not_there_is_named() {
    let (code, out, err) = call(&["predict", "--prometheus", "http://127.0.0.1:1"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("cannot read from http://127.0.0.1:1"), "{err}");
    let (code, _, err) = call(&["predict", "--prometheus", "http://127.0.0.1:1", "--step", "600"]);
    assert!(code == 1 && err.contains("--step 600: from Prometheus, give 15 to 300 seconds"), "{err}");
}

#[test]
fn trained_weights_forecast_and_broken_ones_are_refused() {
    with_usage(|csv, dir| {
        let out = dir.join("weights");
        let train =
            ["train", "--csv", csv, "--out", out.to_str().unwrap(), "--epochs", "2", "--windows", "600"];
        let (code, text, err) = call(&train);
        assert_eq!(code, 0, "{err}");
        assert!(
            err.contains(
                "600 windows to train on, 150 newer ones to choose by; at most 2 epochs of 19 steps"
            )
        );
        assert!(text.contains("training data: SHA-256 ") && text.contains("its linear map alone"), "{text}");
        let sums = std::fs::read_to_string(out.join("SHA256SUMS")).unwrap();
        assert!(sums.contains("  lstm.json\n") && sums.contains("  lstm.safetensors\n"), "{sums}");
        let file = out.join("lstm.safetensors");
        let backtest = ["backtest", "--csv", csv, "--json", "--model", file.to_str().unwrap()];
        let report = json(&backtest);
        assert!(
            report["models"].as_array().unwrap().iter().any(|model| model["model"] == "lstm"),
            "{report}"
        );
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[1_000] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let (code, _, err) = call(&backtest);
        assert!(code == 1 && err.contains("--model") && err.contains("its SHA-256 is"), "{err}");
    });
}

/// Another shape than that of the weights which the program brings along.
#[test]
fn without_fitting_weights_the_simple_models_are_by_themselves() {
    with_usage(|csv, _| {
        let (code, out, err) = call(&["predict", "--csv", csv, "--horizon", "5"]);
        assert!(code == 0 && out.starts_with("the next 5 minutes"), "{out}");
        assert!(
            err.starts_with("note: without the network: lstm.json: the model is for windows of 30 -> 10"),
            "{err}"
        );
    });
}
