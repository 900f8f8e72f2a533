//! Random histories on a GPU in memory that has the driver's rules, with an error or the process's end at every call.

use std::collections::BTreeMap;

use super::*;
use crate::mig::{Variants, enumerate_layouts};
use crate::model::rng::Rng;

/// What happens to a call of a [`Gpu`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// This one is refused.
    Error,
    /// The process dies before it: it and all later ones have no effect.
    KilledBefore,
    /// The process dies after it: it has its effect, all later ones have none.
    KilledAfter,
}

/// A GPU in memory.
struct Gpu {
    model: &'static GpuModel,
    /// By placement: whether the compute instance exists.
    instances: BTreeMap<Placement, bool>,
    held: BTreeSet<Placement>,
    made: usize,
    fault: Option<(usize, Fault)>,
    dead: bool,
}

impl Gpu {
    fn new(layout: &Layout) -> Self {
        let instances = layout.placements().iter().map(|placement| (*placement, true)).collect();
        let held = BTreeSet::new();
        Gpu { model: layout.model(), instances, held, made: 0, fault: None, dead: false }
    }

    fn shows(&self, layout: &Layout) -> bool {
        self.instances == Gpu::new(layout).instances
    }

    fn refused(what: &str) -> Result<(), GpuError> {
        Err(GpuError::Driver { what: what.to_owned(), reason: "refused".to_owned() })
    }

    fn carry_out(&mut self, call: Call) -> Result<(), GpuError> {
        let state = |placement| self.instances.get(&placement).copied();
        match call {
            Call::CreateGpu(placement) => {
                let layout = Layout::new(self.model, self.instances.keys().copied()).unwrap();
                assert!(layout.admit(placement).is_ok(), "{call} beside {layout}");
                self.instances.insert(placement, false);
            }
            Call::CreateCompute(placement) => {
                assert_eq!(state(placement), Some(false), "{call}");
                self.instances.insert(placement, true);
            }
            Call::DestroyCompute(placement) => {
                assert!(!self.held.contains(&placement), "{call}: a running pod loses its instance");
                assert_eq!(state(placement), Some(true), "{call}");
                self.instances.insert(placement, false);
            }
            Call::DestroyGpu(placement) => {
                assert_eq!(state(placement), Some(false), "{call}");
                self.instances.remove(&placement);
            }
        }
        Ok(())
    }
}

impl MigGpu for Gpu {
    fn model(&self) -> &'static GpuModel {
        self.model
    }

    fn instances(&self) -> Result<Vec<Instance>, GpuError> {
        let instances = (0..).zip(&self.instances);
        Ok(instances.map(|(id, (&placement, &usable))| Instance { placement, id, usable }).collect())
    }

    fn call(&mut self, call: Call) -> Result<(), GpuError> {
        let fault = self.fault.filter(|(at, _)| *at == self.made).map(|(_, fault)| fault);
        self.made += 1;
        if self.dead {
            return Self::refused("dead");
        }
        self.dead = matches!(fault, Some(Fault::KilledBefore | Fault::KilledAfter));
        match fault {
            Some(Fault::Error | Fault::KilledBefore) => Self::refused("fault"),
            Some(Fault::KilledAfter) => self.carry_out(call).and_then(|()| Self::refused("killed")),
            None => self.carry_out(call),
        }
    }
}

fn layouts(model: &str) -> Vec<Layout> {
    enumerate_layouts(GpuModel::by_name(model).unwrap(), Variants::All).layouts().to_vec()
}

fn any<'a, T>(rng: &mut Rng, items: &'a [T]) -> &'a T {
    &items[usize::try_from(rng.below(items.len() as u64)).unwrap()]
}

const MODELS: [&str; 3] = ["A100-40GB", "A30-24GB", "H100-80GB"];

/// Transitions between random layouts, each with one fault in three, on each model.
const TRANSITIONS: usize = 10_000;

#[test]
fn random_histories_end_in_the_old_layout_or_in_the_new_one() {
    for (stream, model) in (0..).zip(MODELS) {
        let layouts = layouts(model);
        let mut rng = Rng::new(7, stream);
        let mut now = Layout::empty(layouts[0].model());
        let mut gpu = Gpu::new(&now);
        let (mut reached, mut refused, mut undone, mut killed) = (0, 0, 0, 0);
        for _ in 0..TRANSITIONS {
            gpu.held = now.placements().iter().copied().filter(|_| rng.below(3) == 0).collect();
            let free_to = |layout: &&Layout| gpu.held.iter().all(|held| layout.placements().contains(held));
            let possible: Vec<Layout> = layouts.iter().filter(free_to).cloned().collect();
            let to = if rng.below(4) == 0 { any(&mut rng, &layouts) } else { any(&mut rng, &possible) };
            gpu.made = 0;
            let faults = [Fault::Error, Fault::KilledBefore, Fault::KilledAfter];
            let at = usize::try_from(rng.below(12)).unwrap();
            gpu.fault = (rng.below(3) == 0).then(|| (at, *any(&mut rng, &faults)));
            let held = gpu.held.clone();
            match apply(&mut gpu, to, &held) {
                Ok(_) => {
                    assert!(gpu.shows(to));
                    (now, reached) = (to.clone(), reached + 1);
                }
                Err(ApplyError::Refused(error)) => {
                    assert!(matches!(error, TransitionError::PinnedLost(_)), "{error}");
                    assert!(gpu.shows(&now) && gpu.made == 0);
                    refused += 1;
                }
                Err(error) if gpu.dead => {
                    (gpu.dead, gpu.fault) = (false, None);
                    apply(&mut gpu, to, &held).unwrap_or_else(|again| panic!("{error}, then {again}"));
                    assert!(gpu.shows(to));
                    (now, killed) = (to.clone(), killed + 1);
                }
                Err(ApplyError::Undone { .. }) => {
                    assert!(gpu.shows(&now));
                    undone += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!([reached, refused, undone, killed].iter().all(|n| *n > 100), "{model}: too few of a kind");
    }
}

#[test]
fn a_restart_after_a_kill_at_any_call_ends_in_the_wanted_layout() {
    for model in MODELS {
        let layouts = layouts(model);
        let mut rng = Rng::new(11, 0);
        for _ in 0..200 {
            let (from, to) = (any(&mut rng, &layouts), any(&mut rng, &layouts));
            let made = apply(&mut Gpu::new(from), to, &BTreeSet::new()).unwrap().len();
            for (at, fault) in (0..made)
                .flat_map(|at| [Fault::Error, Fault::KilledBefore, Fault::KilledAfter].map(|f| (at, f)))
            {
                let mut gpu = Gpu::new(from);
                gpu.fault = Some((at, fault));
                apply(&mut gpu, to, &BTreeSet::new()).unwrap_err();
                assert!(fault != Fault::Error || gpu.shows(from), "{from} to {to}, call {at}");
                (gpu.dead, gpu.fault) = (false, None);
                apply(&mut gpu, to, &BTreeSet::new()).unwrap();
                assert!(gpu.shows(to), "{from} to {to}, {fault:?} at call {at}");
            }
        }
    }
}

#[test]
fn a_running_pods_instance_is_refused_by_name() {
    let model = GpuModel::by_name("A100-40GB").unwrap();
    let held = Placement::new("3g.20gb".parse().unwrap(), 4);
    let mut gpu = Gpu::new(&Layout::new(model, [held]).unwrap());
    let error = apply(&mut gpu, &Layout::empty(model), &BTreeSet::from([held])).unwrap_err();
    assert!(error.to_string().contains("a running pod holds 3g.20gb@4"), "{error}");
    assert_eq!(gpu.made, 0);
}

#[test]
fn a_way_back_that_fails_is_told() {
    let model = GpuModel::by_name("A30-24GB").unwrap();
    let whole = Layout::new(model, [Placement::new("4g.24gb".parse().unwrap(), 0)]).unwrap();
    let mut gpu = Gpu::new(&whole);
    gpu.fault = Some((1, Fault::KilledBefore));
    let error = apply(&mut gpu, &Layout::empty(model), &BTreeSet::new()).unwrap_err();
    assert!(matches!(error, ApplyError::Stuck { back: Call::CreateCompute(_), .. }), "{error}");
}
