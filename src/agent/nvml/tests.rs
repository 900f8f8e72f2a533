//! The same histories as on a GPU in memory, through a loadable NVML with the driver's rules (`tests/fake_nvml`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::agent::apply::{ApplyError, apply};
use crate::mig::{Layout, Variants, enumerate_layouts};
use crate::model::rng::Rng;

/// The library, compiled for one test, and the state of its GPU.
struct Fake {
    directory: tempfile::TempDir,
    pci: u32,
}

/// Model and PCI id.
const MODELS: [(&str, u32); 3] =
    [("A100-40GB", 0x20B0_10DE), ("A30-24GB", 0x20B7_10DE), ("H100-80GB", 0x2330_10DE)];

impl Fake {
    fn new(pci: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let fake = Fake { directory, pci };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml/lib.rs");
        let compiler = std::env::var_os("RUSTC").unwrap_or("rustc".into());
        let compiled = Command::new(compiler)
            .args(["--edition=2024", "--crate-name=fake_nvml", "--crate-type=cdylib", "-O", "-o"])
            .args([fake.library(), source])
            .env("FAKE_NVML_STATE", fake.state())
            .status();
        assert!(compiled.unwrap().success());
        fake.set(1, None, "");
        fake
    }

    fn library(&self) -> PathBuf {
        self.directory.path().join("libnvidia-ml.so.1")
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn open(&self) -> Driver {
        Driver::open(Some(self.library().as_os_str())).unwrap()
    }

    /// Writes the state: the instances as the library's own lines.
    fn set(&self, mode: u32, fault: Option<(u64, &str)>, instances: &str) {
        let (at, fault) = fault.map_or((-1, "none"), |(at, fault)| (at.cast_signed(), fault));
        fs::write(self.state(), format!("{} {mode} {at} {fault}\n{instances}", self.pci)).unwrap();
    }

    /// The instances' lines, as they are now.
    fn instances(&self) -> String {
        let state = fs::read_to_string(self.state()).unwrap();
        state.split_once('\n').unwrap().1.to_owned()
    }

    /// Arranges for a fault, all else being as it is.
    fn fail(&self, fault: Option<(u64, &str)>) {
        self.set(1, fault, &self.instances());
    }

    /// What the GPU shows.
    fn shows(&self) -> Layout {
        let driver = self.open();
        let gpu = driver.gpu(0).unwrap();
        let instances = gpu.instances().unwrap();
        assert!(instances.iter().all(|instance| instance.usable), "{instances:?}");
        Layout::new(gpu.model(), instances.iter().map(|instance| instance.placement)).unwrap()
    }

    /// Carries out a wish; the outer error is that of opening the GPU.
    fn apply(&self, to: &Layout, held: &BTreeSet<Placement>) -> Result<Result<(), ApplyError>, GpuError> {
        let driver = self.open();
        let mut gpu = driver.gpu(0)?;
        Ok(apply(&mut gpu, to, held).map(drop))
    }
}

fn layouts(model: &str) -> Vec<Layout> {
    enumerate_layouts(GpuModel::by_name(model).unwrap(), Variants::All).layouts().to_vec()
}

fn any<'a, T>(rng: &mut Rng, items: &'a [T]) -> &'a T {
    &items[usize::try_from(rng.below(items.len() as u64)).unwrap()]
}

/// Transitions on each model.
const TRANSITIONS: usize = 10_000;

#[test]
fn random_transitions_take_no_running_pods_instance() {
    for (stream, (model, pci)) in (0..).zip(MODELS) {
        let (fake, layouts, mut rng) = (Fake::new(pci), layouts(model), Rng::new(5, stream));
        let mut now = fake.shows();
        let (mut reached, mut refused, mut failed) = (0, 0, 0);
        for _ in 0..TRANSITIONS {
            let held: BTreeSet<_> = now.placements().iter().copied().filter(|_| rng.below(3) == 0).collect();
            let keeps = |layout: &&Layout| held.iter().all(|held| layout.placements().contains(held));
            let possible: Vec<&Layout> = layouts.iter().filter(keeps).collect();
            let to = if rng.below(4) == 0 { any(&mut rng, &layouts) } else { any(&mut rng, &possible) };
            fake.fail((rng.below(3) == 0).then(|| (rng.below(600), "error")));
            let result = fake.apply(to, &held);
            fake.fail(None);
            let after = fake.shows();
            assert!(held.iter().all(|held| after.placements().contains(held)), "{now} to {to}: {after}");
            match result {
                Ok(Ok(())) => reached += usize::from(after == *to),
                Ok(Err(ApplyError::Refused(_))) => refused += usize::from(after == now),
                _ => failed += usize::from(after == now || after == *to),
            }
            now = after;
        }
        assert_eq!(reached + refused + failed, TRANSITIONS, "{model}: neither old nor new");
        assert!(reached > 1_000 && refused > 100 && failed > 100, "{model}: {reached} {refused} {failed}");
    }
}

/// From one layout to another that shares one instance with it, on an A100.
fn change() -> (Layout, Layout) {
    let layout = |text: &[(&str, u8)]| {
        let placements = text.iter().map(|(profile, start)| Placement::new(profile.parse().unwrap(), *start));
        Layout::new(GpuModel::by_name("A100-40GB").unwrap(), placements).unwrap()
    };
    let from = layout(&[("3g.20gb", 0), ("2g.10gb", 4), ("1g.5gb", 6)]);
    (from, layout(&[("1g.5gb", 0), ("1g.10gb", 2), ("2g.10gb", 4), ("1g.5gb+me", 6)]))
}

#[test]
fn an_error_at_any_call_leaves_the_old_layout_or_the_new_one() {
    let fake = Fake::new(MODELS[0].1);
    let (from, to) = change();
    fake.apply(&from, &BTreeSet::new()).unwrap().unwrap();
    let old = fake.instances();
    let mut errors = 0;
    for at in 0.. {
        fake.set(1, Some((at, "error")), &old);
        let result = fake.apply(&to, &BTreeSet::new());
        fake.fail(None);
        let after = fake.shows();
        match result {
            Ok(Ok(())) => break,
            Ok(Err(ApplyError::Unverified(_))) => assert_eq!(after, to),
            _ => assert_eq!(after, from, "an error at call {at}"),
        }
        errors += 1;
    }
    assert!(errors > 100, "{errors} calls");
}

/// What a test sets for the process that it starts, which is this binary with this one test.
const CHILD: &str = "MIG_SCHEDULER_TEST_FAKE_NVML";

#[test]
fn a_process_killed_at_any_call_is_made_good_by_the_next() {
    let (from, to) = change();
    if let Some(library) = std::env::var_os(CHILD) {
        let driver = Driver::open(Some(&library)).unwrap();
        apply(&mut driver.gpu(0).unwrap(), &to, &BTreeSet::new()).unwrap();
        return;
    }
    let fake = Fake::new(MODELS[0].1);
    fake.apply(&from, &BTreeSet::new()).unwrap().unwrap();
    let old = fake.instances();
    let name = "agent::nvml::tests::a_process_killed_at_any_call_is_made_good_by_the_next";
    let run = |at, fault| {
        fake.set(1, Some((at, fault)), &old);
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", name]).env(CHILD, fake.library()).output().unwrap().status
    };
    let mut killed = 0;
    for at in 0.. {
        let ended = ["killed-before", "killed-after"].map(|fault| {
            let ended = run(at, fault);
            fake.fail(None);
            fake.apply(&to, &BTreeSet::new()).unwrap().unwrap();
            assert_eq!(fake.shows(), to, "{fault} at call {at}");
            ended.success()
        });
        if ended == [true, true] {
            break;
        }
        assert_eq!(ended, [false, false], "call {at}");
        killed += 1;
    }
    assert!(killed > 100, "{killed} calls");
}

#[test]
fn after_a_reboot_the_same_wish_makes_everything_anew() {
    let fake = Fake::new(MODELS[0].1);
    let (from, _) = change();
    fake.apply(&from, &BTreeSet::new()).unwrap().unwrap();
    fake.set(1, None, "");
    assert!(fake.shows().placements().is_empty());
    fake.apply(&from, &BTreeSet::new()).unwrap().unwrap();
    assert_eq!(fake.shows(), from);
}

#[test]
fn what_another_client_uses_stays() {
    let fake = Fake::new(MODELS[0].1);
    let (from, to) = change();
    fake.apply(&from, &BTreeSet::new()).unwrap().unwrap();
    let used =
        fake.instances().lines().map(|line| format!("{}1\n", &line[..line.len() - 1])).collect::<String>();
    fake.set(1, None, &used);
    let error = fake.apply(&to, &BTreeSet::new()).unwrap().unwrap_err();
    assert!(error.to_string().contains("another client holds"), "{error}");
    assert_eq!(fake.shows(), from);
}

#[test]
fn a_gpu_out_of_mig_mode_is_left_alone() {
    let fake = Fake::new(MODELS[0].1);
    fake.set(0, None, "");
    assert_eq!(fake.open().gpu(0).unwrap_err(), GpuError::ModeOff { gpu: 0 });
    assert!(Driver::open(Some(OsStr::new("/nowhere/libnvidia-ml.so.1"))).is_err());
}

#[test]
fn a_start_that_the_driver_refuses_is_its_error() {
    let fake = Fake::new(MODELS[0].1);
    let driver = fake.open();
    let mut gpu = driver.gpu(0).unwrap();
    let placement = |start| Placement::new("3g.20gb".parse().unwrap(), start);
    let refused = |call| matches!(call, Err(GpuError::Driver { .. }));
    assert!(refused(gpu.call(Call::CreateGpu(placement(2)))));
    gpu.call(Call::CreateGpu(placement(4))).unwrap();
    assert!(refused(gpu.call(Call::CreateGpu(placement(4)))));
    assert_eq!(gpu.call(Call::DestroyGpu(placement(0))), Err(GpuError::Absent(placement(0))));
}
