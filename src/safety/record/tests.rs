//! The record as a game of edits, written as words.

use super::*;

fn name(text: &str) -> NodeName {
    text.into()
}

/// `n0` to `n<count - 1>` are eligible.
fn fleet(count: usize) -> Fleet {
    let nodes: BTreeSet<NodeName> = (0..count).map(|at| format!("n{at}").into()).collect();
    Fleet { known: nodes.clone(), eligible: nodes, changing: BTreeSet::new() }
}

fn edit(word: &str) -> Edit {
    let (verb, rest) = word.split_once(':').unwrap();
    let (node, id) = rest.split_once('/').unwrap_or((rest, ""));
    let (node, id) = (name(node), ChangeId(id.to_owned()));
    let why = || "harm".to_owned();
    match verb {
        "open" => Edit::Open { node, id, policy: PolicyVersion("p".into()) },
        "open-q" => Edit::Open { node, id, policy: PolicyVersion("q".into()) },
        "held" => Edit::Close { node, id, outcome: Outcome::Held },
        "unjudged" => Edit::Close { node, id, outcome: Outcome::Unjudged },
        "undone" => Edit::Close { node, id, outcome: Outcome::RolledBack(why()) },
        "frozen" => Edit::Close { node, id, outcome: Outcome::Frozen(why()) },
        "release" => Edit::Release { nodes: [node].into(), gone: BTreeSet::new() },
        "freeze" => Edit::Freeze(why()),
        "restore" => Edit::Restore { node, id, since: Stamp::of(Time::from_secs(1)) },
        _ => panic!("{word}"),
    }
}

/// Applies edits, each twice; a word ending in `!` must be refused. Returns the record.
fn play(nodes: usize, words: &str) -> ClusterRecord {
    let settings = Settings { budget_share: 1.0, ..Settings::default() };
    let fleet = fleet(nodes);
    let mut record = ClusterRecord::default();
    for word in words.split_whitespace() {
        let edit = edit(word.trim_end_matches('!'));
        let after = record.edited(Time::from_secs(9), &edit, &fleet, &settings);
        assert_eq!(after.is_none(), word.ends_with('!'), "{word} on {record:?}");
        if let Some(after) = after {
            assert_eq!(after.edited(Time::from_secs(9), &edit, &fleet, &settings), None, "{word} twice");
            record = after;
        }
    }
    record
}

fn stage(record: &ClusterRecord) -> String {
    match &record.canary.as_ref().unwrap().stage {
        Stage::Trying { members, held } => format!("trying {} held {}", members.len(), held.len()),
        Stage::Everywhere => "everywhere".to_owned(),
        Stage::Failed(why) => format!("failed {why}"),
    }
}

#[test]
fn a_policy_is_tried_on_a_tenth_until_enough_changes_held() {
    let check =
        |nodes, words: &str, expected: &str| assert_eq!(stage(&play(nodes, words)), expected, "{words}");
    // One node of ten or fewer, three of thirty-nine.
    check(10, "open:n0/a open:n1/b!", "trying 1 held 0");
    check(5, "open:n0/a held:n0/a open:n1/b!", "trying 1 held 1");
    check(39, "open:n0/a open:n1/b open:n2/c open:n3/d!", "trying 3 held 0");
    check(10, "open:n0/a held:n0/a open:n0/b held:n0/b open:n0/c held:n0/c open:n7/d", "everywhere");
    // What could not be measured proves nothing.
    check(
        10,
        "open:n0/a unjudged:n0/a open:n0/b held:n0/b open:n0/c held:n0/c open:n7/d!",
        "trying 1 held 2",
    );
    // The same change counts once.
    check(10, "open:n0/a held:n0/a open:n0/a held:n0/a open:n0/a held:n0/a", "trying 1 held 1");
}

#[test]
fn one_undone_change_stops_the_trial_until_the_next_policy() {
    let check = |words: &str, expected: &str| assert_eq!(stage(&play(10, words)), expected, "{words}");
    check("open:n0/a undone:n0/a open:n0/b! open:n1/c!", "failed n0: harm");
    check("open:n0/a frozen:n0/a open:n0/b!", "failed n0: harm");
    check("open:n0/a undone:n0/a open-q:n1/b", "trying 1 held 0");
    // Once everywhere, a change is undone by itself.
    let held = "open:n0/a held:n0/a open:n0/b held:n0/b open:n0/c held:n0/c";
    check(&format!("{held} open:n1/d undone:n1/d open:n2/e"), "everywhere");
}

#[test]
fn a_canary_node_that_is_gone_makes_room() {
    let record = play(10, "open:n0/a held:n0/a");
    let settings = Settings::default();
    let now = Time::from_secs(9);
    assert_eq!(record.leftovers(now, &fleet(10), &settings), None);
    let mut smaller = fleet(10);
    smaller.eligible.remove(&name("n0"));
    let edit = record.leftovers(now, &smaller, &settings).unwrap();
    let record = record.edited(now, &edit, &smaller, &settings).unwrap();
    assert_eq!(stage(&record), "trying 0 held 1", "what it proved stays proven");
    let open = Edit::Open { node: name("n1"), id: ChangeId("b".into()), policy: PolicyVersion("p".into()) };
    assert!(record.edited(now, &open, &smaller, &settings).is_some());
}

#[test]
fn a_slot_that_no_journal_speaks_of_is_given_back_after_a_while() {
    let record = play(10, "open:n0/a");
    let settings = Settings::default();
    let later = Time::from_secs(9 + 301);
    let changing = Fleet { changing: [name("n0")].into(), ..fleet(10) };
    assert_eq!(record.leftovers(Time::from_secs(309), &fleet(10), &settings), None);
    assert_eq!(record.leftovers(later, &changing, &settings), None);
    let edit = record.leftovers(later, &fleet(10), &settings).unwrap();
    let after = record.edited(later, &edit, &fleet(10), &settings).unwrap();
    assert!(after.open.is_empty());
    assert_eq!(after.last_change(&name("n0")), record.last_change(&name("n0")), "the cool-down stays");
}

#[test]
fn the_budget_counts_slots_and_journals() {
    let settings = Settings { canary_share: 1.0, ..Settings::default() };
    let policy = PolicyVersion("p".into());
    let slot = |record: &ClusterRecord, fleet: &Fleet| record.slot(&name("n9"), &policy, fleet, &settings);
    let record = play(20, "open:n0/a");
    assert_eq!(slot(&record, &fleet(20)), Ok(()));
    let other = Fleet { changing: [name("n1")].into(), ..fleet(20) };
    assert_eq!(slot(&record, &other), Err(NoSlot::BudgetSpent { most: 2 }));
    let same = Fleet { changing: [name("n0")].into(), ..fleet(20) };
    assert_eq!(slot(&record, &same), Ok(()));
    assert_eq!(slot(&record, &fleet(9)), Err(NoSlot::BudgetSpent { most: 1 }));
    let busy = Fleet { changing: [name("n9")].into(), ..fleet(20) };
    assert_eq!(slot(&ClusterRecord::default(), &busy), Err(NoSlot::Busy));
}

#[test]
fn a_freeze_stops_everything_and_is_kept() {
    let record = play(10, "freeze:x open:n0/a!");
    assert_eq!(record.frozen.unwrap().why, "harm");
}

#[test]
fn a_lost_record_is_rebuilt_from_the_journals() {
    let record = play(10, "restore:n0/a open:n0/b!");
    assert!(record.has_slot(&name("n0"), &ChangeId("a".into())));
    assert_eq!(record.last_change(&name("n0")), Some(Stamp::of(Time::from_secs(1))));
    let renewed = ClusterRecord::renewed(Time::from_secs(7));
    assert_eq!(renewed.last_change(&name("n5")), Some(Stamp::of(Time::from_secs(7))));
}

#[test]
fn a_node_that_is_gone_is_forgotten_once_its_cool_down_is_over() {
    let record = play(10, "open:n0/a held:n0/a");
    let settings = Settings::default();
    let mut smaller = fleet(10);
    smaller.known.remove(&name("n0"));
    let late = Time::from_secs(9 + 7_201);
    assert_eq!(record.leftovers(Time::from_secs(9 + 7_200), &smaller, &settings), None);
    let edit = record.leftovers(late, &smaller, &settings).unwrap();
    assert!(record.edited(late, &edit, &smaller, &settings).unwrap().changed.is_empty());
    assert_eq!(record.leftovers(late, &fleet(10), &settings), None, "while it exists it is remembered");
}

#[test]
fn a_record_written_by_a_fast_clock_is_cut() {
    let ahead = Time::from_secs(1_000_000);
    let mut record = ClusterRecord::renewed(ahead);
    record.changed.insert(name("n0"), Stamp::of(ahead));
    let now = Time::from_secs(9);
    let edit = record.leftovers(now, &fleet(10), &Settings::default()).unwrap();
    let after = record.edited(now, &edit, &fleet(10), &Settings::default()).unwrap();
    assert_eq!(after.last_change(&name("n0")), Some(Stamp::of(now)));
}
