//! What `pack --mig-parted` writes, read by NVIDIA's own parser.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use mig_scheduler::mig::tables::MODELS;

/// Runs a command with this stdin; what it printed.
fn call(command: &mut Command, input: &str) -> Result<String> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no stdin")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    Ok(text(&output.stdout))
}

/// The configurations in `document`, each with how often it matches every GPU of a node with `gpus`.
fn parsed(document: &str, gpus: usize) -> Result<Vec<(String, Vec<usize>)>> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migparted");
    let printed =
        call(Command::new("go").args(["run", ".", &gpus.to_string()]).current_dir(module), document)?;
    let line = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().context("an empty line")?.to_owned();
        Ok((name, words.map(str::parse).collect::<Result<_, _>>()?))
    };
    printed.lines().map(line).collect()
}

fn packed(arguments: &[&str], demand: &str) -> Result<String> {
    call(Command::new(env!("CARGO_BIN_EXE_mig-scheduler")).arg("pack").args(arguments), demand)
}

/// Every profile of every model, one GPU each and together, so that every spelling is read.
#[test]
fn nvidias_parser_takes_every_configuration() -> Result<()> {
    for model in &MODELS {
        let entry = |profile| format!("{{profile: {profile}, count: 1}}");
        let profiles: Vec<_> = model.profiles.iter().map(|profile| entry(profile.name)).collect();
        let demand = format!("demand: [{}]", profiles.join(", "));
        let gpus = model.profiles.len();
        let document =
            packed(&["--model", model.name, "--gpus", &gpus.to_string(), "--mig-parted"], &demand)?;
        let nodes = gpus.div_ceil(8);
        let labelled = document.matches("nvidia.com/mig.config=").count();
        let configs = parsed(&document, gpus.min(8))?;
        ensure!(!configs.is_empty() && configs.len() <= nodes && labelled == configs.len(), "{document}");
        for (name, matched) in configs {
            let first = matched.iter().take_while(|times| **times == 1).count();
            let named_once = matched[first..].iter().all(|times| *times == 0) && first > 0;
            ensure!(named_once, "{model}: {name} matches its GPUs {matched:?} times");
            ensure!(document.contains(&format!("nvidia.com/mig.config={name}")), "{document}");
        }
    }
    Ok(())
}

/// The parser is strict, so that the test above means something.
#[test]
fn nvidias_parser_refuses_what_it_does_not_know() -> Result<()> {
    let document = packed(&["--model", "A30-24GB", "--mig-parted"], "demand: [{profile: 1g.6gb, count: 3}]")?;
    ensure!(parsed(&document, 1)?.len() == 1);
    for (from, to) in [("devices:", "device:"), ("version: v1", "version: v2"), ("1g.6gb", "1x.6gb")] {
        ensure!(parsed(&document.replace(from, to), 1).is_err(), "{to} was taken");
    }
    Ok(())
}
