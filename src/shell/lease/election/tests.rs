//! The election as tables (what is known, what comes next) and as a seeded simulation of two candidates on a bad network.

use super::*;

const LEASE: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(10);

fn candidate(identity: &str) -> Election {
    let settings =
        config::LeaderElection { lease_duration: LEASE, renew_deadline: RENEW, ..Default::default() };
    Election::new(identity.to_owned(), &settings)
}

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A Lease `holder/duration/renewed at/transitions`.
fn lease(holder: &str, seconds: i32, renewed: i64, transitions: i32) -> Box<Lease> {
    Box::new(Lease {
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            acquire_time: Some(MicroTime(wall(1))),
            renew_time: Some(MicroTime(wall(renewed))),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }),
        ..Lease::default()
    })
}

/// A step in a word: the request, and for writes how the spec came about.
fn word(step: &Step) -> String {
    let spec = |lease: &Lease| {
        let spec = lease.spec.clone().unwrap();
        let acquired = if spec.acquire_time == spec.renew_time { "acquired" } else { "renewed" };
        format!("{acquired} by {} x{}", spec.holder_identity.unwrap(), spec.lease_transitions.unwrap())
    };
    match step {
        Step::Send(Request::Read) => "read".to_owned(),
        Step::Send(Request::Create(lease)) => format!("create, {}", spec(lease)),
        Step::Send(Request::Replace(lease)) => format!("replace, {}", spec(lease)),
        Step::Wait => "wait".to_owned(),
    }
}

/// An attempt that reads `answer`: what comes after.
fn after_read(election: &mut Election, now: Instant, answer: Answer) -> String {
    election.begin();
    assert_eq!(word(&election.next(now, wall(100))), "read");
    election.observe(now, now, answer);
    word(&election.next(now, wall(100)))
}

/// A candidate that leads since `now`, by a Lease it created.
fn leader(identity: &str, now: Instant) -> Election {
    let mut election = candidate(identity);
    assert_eq!(after_read(&mut election, now, Answer::Missing), format!("create, acquired by {identity} x0"));
    election.observe(now, now, Answer::Written(lease(identity, 15, 100, 0)));
    assert_eq!(election.leadership(now), Leadership::Leading { deadline: now + RENEW });
    election
}

/// Tests what a candidate does about a Lease that it saw first some seconds ago and reads unchanged now.
#[test]
fn candidates_wait_for_the_holder_s_own_term() {
    let cases = [
        ("free", lease("", 1, 0, 4), 0, "replace, acquired by me x5"),
        ("held", lease("other", 15, 0, 4), 0, "wait"),
        ("held, nearly expired", lease("other", 15, 0, 4), 14, "wait"),
        ("expired", lease("other", 15, 0, 4), 15, "replace, acquired by me x5"),
        ("held for longer than ours", lease("other", 60, 0, 4), 59, "wait"),
        ("held for shorter than ours", lease("other", 5, 0, 4), 5, "replace, acquired by me x5"),
        ("no duration: ours", lease("other", 0, 0, 4), 14, "wait"),
        ("no duration, expired by ours", lease("other", 0, 0, 4), 15, "replace, acquired by me x5"),
        ("ours, from a write whose answer was lost", lease("me", 15, 0, 4), 0, "replace, renewed by me x4"),
        ("transitions at their limit", lease("", 1, 0, i32::MAX), 0, "replace, acquired by me x2147483647"),
    ];
    for (name, found, age, expected) in cases {
        let mut election = candidate("me");
        let first = Instant::now();
        after_read(&mut election, first, Answer::Found(found.clone()));
        let got = after_read(&mut election, first + secs(age), Answer::Found(found));
        assert_eq!(got, expected, "{name}");
    }
}

/// Tests that a Lease without a spec counts as free.
#[test]
fn an_empty_lease_is_free() {
    let mut election = candidate("me");
    let got = after_read(&mut election, Instant::now(), Answer::Found(Box::default()));
    assert_eq!(got, "replace, acquired by me x1");
}

/// Tests that another machine's clock plays no part: a renewal counts from when we saw it, whatever time it carries.
#[test]
fn wall_clocks_are_not_compared() {
    for renewed in [-3_000_000_000, 0, 50, 100, 9_000_000_000] {
        let mut election = candidate("me");
        let first = Instant::now();
        let read = |election: &mut Election, at: u64, renewed: i64| {
            after_read(election, first + secs(at), Answer::Found(lease("other", 15, renewed, 0)))
        };
        assert_eq!(read(&mut election, 0, renewed), "wait");
        assert_eq!(read(&mut election, 14, renewed), "wait");
        // A sign of life, though it carries an earlier time than the one before.
        assert_eq!(read(&mut election, 14, renewed - 7), "wait");
        assert_eq!(read(&mut election, 28, renewed - 7), "wait");
        assert_eq!(read(&mut election, 29, renewed - 7), "replace, acquired by me x1");
    }
}

/// Tests that a label or a new resource version is no sign of life, yet guards the write.
#[test]
fn only_the_record_is_a_sign_of_life() {
    let mut election = candidate("me");
    let first = Instant::now();
    after_read(&mut election, first, Answer::Found(lease("dead", 15, 0, 0)));
    let mut touched = lease("dead", 15, 0, 0);
    touched.metadata.resource_version = Some("42".to_owned());
    election.begin();
    election.next(first, wall(100));
    election.observe(first, first + LEASE, Answer::Found(touched));
    let Step::Send(Request::Replace(write)) = election.next(first + LEASE, wall(100)) else {
        panic!("expected a write")
    };
    assert_eq!(write.metadata.resource_version.as_deref(), Some("42"));
}

/// Tests that the deadline counts from when the write was sent, since the others' clock may run from then on.
#[test]
fn deadline_counts_from_sending() {
    let sent = Instant::now();
    let mut election = leader("me", sent);
    election.begin();
    let renewed = sent + secs(2);
    assert_eq!(word(&election.next(renewed, wall(102))), "replace, renewed by me x0");
    election.observe(renewed, renewed + secs(3), Answer::Written(lease("me", 15, 102, 0)));
    assert_eq!(election.leadership(renewed + secs(3)), Leadership::Leading { deadline: renewed + RENEW });
}

/// Tests that leadership ends at the deadline for good, whatever answer comes later.
#[test]
fn lost_at_the_deadline_and_for_ever() {
    let now = Instant::now();
    for late in [Answer::Written(lease("me", 15, 102, 0)), Answer::Failed, Answer::Conflict, Answer::Missing]
    {
        let mut election = leader("me", now);
        let almost = now + RENEW - Duration::from_millis(1);
        assert_eq!(election.leadership(almost), Leadership::Leading { deadline: now + RENEW });
        // The process is stopped here with a renewal in flight, and continued after the deadline.
        election.begin();
        election.next(almost, wall(110));
        election.observe(almost, now + RENEW, late);
        assert_eq!(election.leadership(now + RENEW), Leadership::Lost);
        election.begin();
        assert_eq!(election.next(now + RENEW, wall(110)), Step::Wait);
        assert_eq!(election.leadership(now), Leadership::Lost);
    }
}

/// Tests that a leader which reads another holder's name stops at once.
#[test]
fn another_holder_ends_leadership() {
    let now = Instant::now();
    let mut election = leader("me", now);
    election.begin();
    election.next(now, wall(102));
    election.observe(now, now, Answer::Conflict);
    assert_eq!(word(&election.next(now, wall(102))), "read");
    election.observe(now, now, Answer::Found(lease("other", 15, 101, 1)));
    assert_eq!(election.leadership(now), Leadership::Lost);
    assert_eq!(election.release(wall(103)), None);
}

/// Tests that somebody's label does not end it: one conflict is looked into, a second one left for the next attempt.
#[test]
fn a_conflict_is_read_once() {
    let now = Instant::now();
    let mut election = leader("me", now);
    election.begin();
    election.next(now, wall(102));
    election.observe(now, now, Answer::Conflict);
    assert_eq!(word(&election.next(now, wall(102))), "read");
    election.observe(now, now, Answer::Found(lease("me", 15, 100, 0)));
    assert_eq!(word(&election.next(now, wall(102))), "replace, renewed by me x0");
    election.observe(now, now, Answer::Conflict);
    assert_eq!(election.next(now, wall(102)), Step::Wait);
    assert_eq!(election.leadership(now), Leadership::Leading { deadline: now + RENEW });
}

/// Tests that a leader whose Lease was deleted creates it again, and that failures merely end the attempt.
#[test]
fn a_deleted_lease_is_created_again() {
    let now = Instant::now();
    let mut election = leader("me", now);
    election.begin();
    election.next(now, wall(102));
    election.observe(now, now, Answer::Missing);
    assert_eq!(word(&election.next(now, wall(102))), "create, acquired by me x0");
    election.observe(now, now, Answer::Failed);
    assert_eq!(election.next(now, wall(102)), Step::Wait);
}

/// Tests that an acquisition answered only after its own deadline gives nothing, and is found and renewed later.
#[test]
fn a_late_acquisition_is_no_leadership() {
    let now = Instant::now();
    let mut election = candidate("me");
    after_read(&mut election, now, Answer::Missing);
    election.observe(now, now + RENEW, Answer::Written(lease("me", 15, 100, 0)));
    assert_eq!(election.leadership(now + RENEW), Leadership::Standby);
    let got = after_read(&mut election, now + RENEW, Answer::Found(lease("me", 15, 100, 0)));
    assert_eq!(got, "replace, renewed by me x0");
}

/// Tests that a release frees what is ours in client-go's form, and nothing else.
#[test]
fn release_frees_only_what_is_ours() {
    let now = Instant::now();
    let mut election = leader("me", now);
    let spec = election.release(wall(105)).unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(spec.lease_duration_seconds, Some(1));
    assert_eq!(spec.lease_transitions, Some(0));
    assert_eq!(election.leadership(now), Leadership::Standby);

    let mut standby = candidate("me");
    assert_eq!(standby.release(wall(105)), None);
    after_read(&mut standby, now, Answer::Found(lease("other", 15, 100, 0)));
    assert_eq!(standby.release(wall(105)), None);
}

/// A small generator, so that a failing seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The API server: one Lease, guarded by its resource version.
#[derive(Default)]
struct Server(Option<Lease>, u64);

impl Server {
    fn apply(&mut self, request: &Request) -> Answer {
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        match (request, &self.0) {
            (Request::Read, Some(lease)) => Answer::Found(Box::new(lease.clone())),
            (Request::Read | Request::Replace(_), None) => Answer::Missing,
            (Request::Create(_), Some(_)) => Answer::Conflict,
            (Request::Replace(new), Some(old)) if version(new) != version(old) => Answer::Conflict,
            (Request::Create(new) | Request::Replace(new), _) => {
                self.1 += 1;
                let mut lease = Lease::clone(new);
                lease.metadata.resource_version = Some(self.1.to_string());
                self.0 = Some(lease.clone());
                Answer::Written(Box::new(lease))
            }
        }
    }
}

/// What a simulated candidate does next, and when (in milliseconds).
enum Doing {
    Pausing,
    /// The request arrives at the server; sent at, answered at.
    Sending(Request, u64, u64),
    /// The answer arrives.
    Hearing(Answer, u64),
}

struct Process {
    election: Election,
    doing: Doing,
    at: u64,
    /// Wall clocks differ by years.
    skew: i64,
}

const REQUEST_TIMEOUT: u64 = 4_000;

impl Process {
    fn act(&mut self, base: Instant, server: &mut Server, random: &mut Random) {
        let now = base + Duration::from_millis(self.at);
        match std::mem::replace(&mut self.doing, Doing::Pausing) {
            Doing::Pausing => {
                self.election.begin();
                self.go_on(now, random);
            }
            Doing::Sending(request, sent, heard) => {
                let answer = server.apply(&request);
                let lost = heard.saturating_sub(sent) > REQUEST_TIMEOUT;
                self.at = self.at.max(heard);
                self.doing = Doing::Hearing(if lost { Answer::Failed } else { answer }, sent);
            }
            Doing::Hearing(answer, sent) => {
                self.election.observe(base + Duration::from_millis(sent), now, answer);
                self.go_on(now, random);
            }
        }
    }

    fn go_on(&mut self, now: Instant, random: &mut Random) {
        let wall = wall(self.skew + i64::try_from(self.at / 1000).unwrap());
        match self.election.next(now, wall) {
            Step::Send(request) => {
                // Mostly quick, sometimes slower than the time-out, applied or not.
                let slow = random.below(4) == 0;
                let (there, back) = if slow { (3_000, 9_000) } else { (20, 20) };
                let (sent, arrives) = (self.at, self.at + random.below(there));
                self.at = arrives;
                self.doing = Doing::Sending(request, sent, arrives + random.below(back));
            }
            Step::Wait => {
                // Sometimes the process is stopped for longer than its lease.
                let stopped = if random.below(20) == 0 { random.below(40_000) } else { 0 };
                self.at += 2_000 + random.below(400) + stopped;
            }
        }
    }
}

/// Tests that two candidates never lead at the same time, over slow and lost answers, stopped processes and wrong clocks,
/// and that somebody leads in the end. A candidate that lost is restarted under a new name, as a cluster would.
#[test]
fn never_two_leaders() {
    let base = Instant::now();
    let mut terms = 0;
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut server = Server::default();
        let start = |name: String, at: u64, skew: i64| Process {
            election: candidate(&name),
            doing: Doing::Pausing,
            at,
            skew,
        };
        let mut processes = [start("a0".to_owned(), 0, 0), start("b0".to_owned(), 7, 1_000_000_000)];
        for round in 0..2_000 {
            let turn = usize::from(processes[1].at < processes[0].at);
            let at = processes[turn].at;
            processes[turn].act(base, &mut server, &mut random);
            let now = base + Duration::from_millis(at);
            let leading = |process: &Process| process.election.deadline().is_some_and(|end| now < end);
            let both = processes.iter().all(leading);
            assert!(!both, "seed {seed}, round {round}: two leaders at {at} ms");
            if processes[turn].election.leadership(now) == Leadership::Lost {
                terms += 1;
                processes[turn] = start(format!("{turn}-{round}"), at + 1_000, processes[turn].skew);
            }
        }
        assert!(server.0.is_some(), "seed {seed}: nobody ever led");
    }
    assert!(terms > 300, "only {terms} terms ended: the simulation proves little");
}
