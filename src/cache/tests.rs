//! The cache's life cycle of pods and nodes, and that what it adds up is always what its parts make.

use super::*;
use crate::fixture::{node, pod};
use crate::mig::Placement;
use crate::model::ResourceName;

fn on_demand(gpu: u16, profile: &str, start: u8) -> DevicePlacement {
    DevicePlacement { gpu, placement: Placement::new(profile.parse().unwrap(), start) }
}

fn taken(cache: &Cache, name: &str, resource: &str) -> u64 {
    let at = cache.find(&name.into()).unwrap();
    cache.at(at).requested().get(&ResourceName::from(resource))
}

const SMALL: &str = "nvidia.com/mig-1g.5gb";

#[test]
fn a_pod_is_assumed_confirmed_and_deleted() {
    let mut cache = Cache::default();
    let at = cache.apply_node(node("n0 1g.5gb=2")).unwrap().at;
    let small = pod("p0 1g.5gb=1");
    cache.assume(&small, at, &[]);
    assert!(cache.is_assumed(&small.id.uid));
    assert_eq!((taken(&cache, "n0", SMALL), cache.assumed_count()), (1, 1));
    let before = cache.generation();
    assert!(!cache.apply_pod(&pod("p0 1g.5gb=1 on=n0"), &"n0".into()).changed);
    assert_eq!((taken(&cache, "n0", SMALL), cache.assumed_count()), (1, 0));
    assert_eq!(cache.generation(), before, "a confirmation changes nothing that a decision looks at");
    assert_eq!(cache.remove_pod(&small.id.uid).map(|left| left.node), Some(at));
    assert_eq!((taken(&cache, "n0", SMALL), cache.pod_count()), (0, 0));
    assert!(cache.remove_pod(&small.id.uid).is_none());
}

#[test]
fn a_pod_seen_on_another_node_than_assumed_moves() {
    let mut cache = Cache::default();
    let assumed = cache.apply_node(node("n0 1g.5gb=1")).unwrap().at;
    cache.apply_node(node("n1 1g.5gb=1"));
    cache.assume(&pod("p0 1g.5gb=1"), assumed, &[]);
    let moved = cache.apply_pod(&pod("p0 1g.5gb=1 on=n1"), &"n1".into());
    assert_eq!((moved.left.map(|left| left.node), moved.changed), (Some(assumed), true));
    assert_eq!((taken(&cache, "n0", SMALL), taken(&cache, "n1", SMALL)), (0, 1));
    assert_eq!(cache.assumed_count(), 0);
}

#[test]
fn pods_are_counted_before_their_node_is_known_and_after_it_is_gone() {
    let mut cache = Cache::default();
    cache.apply_pod(&pod("p0 1g.5gb=1 on=n0"), &"n0".into());
    assert_eq!((cache.node_count(), cache.nodes().count()), (0, 0));
    cache.apply_node(node("n0 1g.5gb=1"));
    assert_eq!((cache.node_count(), taken(&cache, "n0", SMALL)), (1, 1));
    cache.delete_node(&"n0".into());
    assert_eq!((cache.node_count(), taken(&cache, "n0", SMALL)), (0, 1));
    cache.apply_node(node("n0 1g.5gb=1"));
    assert_eq!(taken(&cache, "n0", SMALL), 1);
    cache.delete_node(&"n0".into());
    cache.remove_pod(&"p0".into());
    assert_eq!(cache.find(&"n0".into()), None, "nothing lingers once its last pod is gone");
    let reused = cache.apply_node(node("n9 1g.5gb=1")).unwrap().at;
    assert_eq!(
        (reused.as_usize(), cache.at(reused).pod_count()),
        (0, 0),
        "its position is used again, empty"
    );
}

#[test]
fn an_unchanged_node_is_no_change() {
    let mut cache = Cache::default();
    assert!(cache.apply_node(node("n0 1g.5gb=1")).is_some());
    let before = cache.generation();
    assert_eq!(cache.apply_node(node("n0 1g.5gb=1")), None);
    assert_eq!(cache.generation(), before);
    assert!(cache.apply_node(node("n0 1g.5gb=2")).is_some());
}

#[test]
fn slots_follow_the_placements() {
    let mut cache = Cache::default();
    let at = cache.apply_node(node("n0 A100-40GB*2")).unwrap().at;
    cache.assume(&pod("p0 3g.20gb=1"), at, &[on_demand(1, "3g.20gb", 4)]);
    assert_eq!(cache.at(at).gpus()[1].mask().bits(), 0b1111_0000);
    assert_eq!(cache.at(at).free_slices(), 12);
    // The API does not repeat the placements: they are kept.
    cache.apply_pod(&pod("p0 3g.20gb=1 on=n0"), &"n0".into());
    cache.apply_node(node("n0 A100-40GB*2 label=a:b"));
    assert_eq!(cache.at(at).gpus()[1].mask().bits(), 0b1111_0000);
    cache.remove_pod(&"p0".into());
    assert_eq!(cache.at(at).free_slices(), 16);
}

#[test]
fn instances_at_unknown_or_impossible_places_are_unaccounted() {
    let check = |placements: &[DevicePlacement]| {
        let mut cache = Cache::default();
        let at = cache.apply_node(node("n0 A100-40GB*1")).unwrap().at;
        cache.assume(&pod("taken 4g.20gb=1"), at, &[on_demand(0, "4g.20gb", 0)]);
        cache.assume(&pod("p0 2g.10gb=1"), at, placements);
        assert!(cache.at(at).has_unaccounted_instances(), "{placements:?}");
        assert_eq!(cache.at(at).free_slices(), 4, "nothing of a bad placement is entered");
        cache.remove_pod(&"p0".into());
        assert!(!cache.at(at).has_unaccounted_instances());
        assert_eq!(cache.at(at).free_slices(), 4);
    };
    check(&[]);
    check(&[on_demand(0, "2g.10gb", 2)]); // overlaps
    check(&[on_demand(0, "2g.10gb", 6)]); // no legal start
    check(&[on_demand(7, "2g.10gb", 4)]); // no such GPU
    check(&[on_demand(0, "2g.10gb", 4), on_demand(0, "1g.5gb", 6)]); // more than it asked for
}

#[test]
fn a_snapshot_stays_as_it_was_and_catches_up_by_what_changed() {
    let mut cache = Cache::default();
    for name in ["n0", "n1", "n2"] {
        cache.apply_node(node(&format!("{name} 1g.5gb=2")));
    }
    let mut snapshot = Snapshot::default();
    snapshot.update(&cache);
    let frozen = snapshot.clone();
    let at = cache.find(&"n1".into()).unwrap();
    cache.assume(&pod("p0 1g.5gb=1"), at, &[]);
    assert_eq!(cache.changed_since(snapshot.generation()).collect::<Vec<_>>(), [at]);
    snapshot.update(&cache);
    cache.delete_node(&"n2".into());
    let pods = |snapshot: &Snapshot| snapshot.nodes().map(|(info, _)| info.pod_count()).collect::<Vec<_>>();
    assert_eq!((pods(&frozen), pods(&snapshot)), (vec![0, 0, 0], vec![0, 1, 0]));
    snapshot.update(&cache);
    assert_eq!(pods(&snapshot), [0, 1]);
}
