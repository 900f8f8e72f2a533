//! Order, back-off and the moves between the parts of the queue.

use super::*;
use crate::fixture::{chance, pod};

const SECOND: u64 = 1;

fn queue() -> Queue {
    Queue::new(Duration::from_secs(1), Duration::from_secs(10))
}

fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

fn names(queue: &mut Queue) -> String {
    let mut names = Vec::new();
    while let Some(next) = queue.pop() {
        names.push(next.pod.id.name.to_string());
    }
    names.join(" ")
}

fn verdict(message: &str) -> Verdict {
    Verdict { message: message.into(), at: Time::ZERO, topology: 0, hopeless: true }
}

/// The pod waits as what it is where no running pod concerns it.
fn wait(queue: &mut Queue, uid: &PodUid, now: Time, message: &str) -> News {
    let kind = queue.get(uid).unwrap().pod.spec.clone().into();
    queue.wait(uid, now, kind, verdict(message))
}

fn lengths(queue: &Queue) -> [usize; 4] {
    queue.lengths().map(|(_, length)| length)
}

#[test]
fn order_is_priority_then_age_then_arrival() {
    let mut queue = queue();
    for text in ["late created=9", "b created=5", "a created=5", "urgent prio=10 created=99", "low prio=-1"] {
        queue.apply(at(100), pod(text));
    }
    assert_eq!(names(&mut queue), "urgent b a late low");
}

#[test]
fn backoff_doubles_up_to_its_limit() {
    let mut queue = queue();
    queue.apply(at(0), pod("p"));
    let mut now = at(0);
    for expected in [1, 2, 4, 8, 10, 10] {
        queue.flush_backoff(now);
        queue.pop().unwrap();
        queue.retry(&"p".into(), now, &"no".into());
        let ready = queue.next_ready().unwrap();
        assert_eq!(ready.since(now), Duration::from_secs(expected));
        assert_eq!(queue.flush_backoff(Time::from_micros(ready.as_micros() - 1)), 0);
        now = ready;
    }
}

#[test]
fn a_waiting_spec_is_woken_as_a_whole_and_only_by_what_can_take_it() {
    let mut queue = queue();
    for text in ["small0 1g.5gb=1", "small1 1g.5gb=1", "large 7g.40gb=1"] {
        queue.apply(at(0), pod(text));
    }
    while let Some(uid) = queue.pop().map(|next| next.pod.id.uid.clone()) {
        assert_eq!(wait(&mut queue, &uid, at(0), "0/1 nodes"), News::Message);
    }
    assert_eq!(lengths(&queue), [0, 0, 3, 0]);
    assert_eq!(queue.next_ready(), None, "nobody waits for time to pass");
    assert!(queue.wake(at(5), |_| false).is_empty());
    let small = PodKind::from(pod("x 1g.5gb=1").spec);
    assert!(queue.verdict(&small).is_some());
    // Within the back-off: not before it ends.
    let woken = queue.wake(Time::from_micros(10), |kind| *kind == small);
    assert_eq!(woken, [QueueName::Backoff, QueueName::Backoff]);
    assert!(queue.verdict(&small).is_none());
    assert_eq!(queue.flush_backoff(at(SECOND)), 2);
    assert_eq!(names(&mut queue), "small0 small1");
    // After it: at once.
    assert_eq!(queue.wake(at(5), |_| true), [QueueName::Active]);
}

#[test]
fn a_message_is_new_once() {
    let mut queue = queue();
    queue.apply(at(0), pod("p"));
    let mut fail = |message: &str| {
        queue.wake(at(100), |_| true);
        queue.flush_backoff(at(100));
        queue.pop().unwrap();
        wait(&mut queue, &"p".into(), at(0), message)
    };
    let news = [News::Message, News::None, News::Message, News::Message];
    assert_eq!([fail("a"), fail("a"), fail("b"), fail("a")], news);
}

#[test]
fn gates_hold_a_pod_until_they_are_lifted() {
    let mut queue = queue();
    assert_eq!(queue.apply(at(0), pod("p gated")), Some((QueueName::Gated, QueueCause::PodAdd)));
    assert_eq!((lengths(&queue), queue.next_ready()), ([0, 0, 0, 1], None));
    queue.apply(at(1), pod("p gated cpu=5"));
    assert_eq!(lengths(&queue), [0, 0, 0, 1]);
    assert_eq!(queue.apply(at(60), pod("p cpu=5")), Some((QueueName::Active, QueueCause::PodAdd)));
    assert_eq!(queue.pop().unwrap().since, at(60), "time spent gated is not time spent waiting");
}

#[test]
fn a_changed_spec_is_tried_again_and_an_unchanged_one_is_not() {
    let mut queue = queue();
    queue.apply(at(0), pod("p cpu=5"));
    queue.pop().unwrap();
    wait(&mut queue, &"p".into(), at(0), "no");
    assert_eq!(queue.apply(at(9), pod("p cpu=5")), None);
    assert_eq!(lengths(&queue), [0, 0, 1, 0]);
    assert_eq!(queue.apply(at(9), pod("p cpu=4")), Some((QueueName::Active, QueueCause::PodUpdate)));
    assert_eq!(lengths(&queue), [1, 0, 0, 0]);
}

#[test]
fn nothing_is_lost_in_flight() {
    let mut queue = queue();
    queue.apply(at(0), pod("p cpu=5"));
    queue.pop().unwrap();
    assert_eq!(queue.apply(at(0), pod("p cpu=6")), None, "its attempt goes on");
    assert!(queue.wake(at(0), |_| true).is_empty());
    queue.retry(&"p".into(), at(0), &"no".into());
    assert_eq!(queue.flush_backoff(at(SECOND)), 1);
    assert_eq!(queue.pop().unwrap().pod.spec.requests.cpu_milli, 6, "and the next one sees the change");
    assert!(queue.remove(&"p".into()).is_some());
    assert_eq!(queue.retry(&"p".into(), at(0), &"no".into()), News::None, "a late answer finds nobody");
    assert_eq!(lengths(&queue), [0; 4]);
}

/// Whatever is done in whatever order, every pod is in just one part and the parts agree with the counts.
#[test]
fn parts_stay_consistent_under_random_use() {
    let mut next = chance(7);
    let mut queue = queue();
    let mut flying: Vec<PodUid> = Vec::new();
    for step in 0..20_000 {
        let now = Time::from_micros(step * 50_000);
        let name = format!("p{} cpu={} {}", next(30), next(3), if next(9) == 0 { "gated" } else { "" });
        match next(8) {
            0 | 1 => drop(queue.apply(now, pod(&name))),
            2 => drop(queue.remove(&pod(&name).id.uid)),
            3 => drop(queue.flush_backoff(now)),
            4 => flying.extend(queue.pop().map(|queued| queued.pod.id.uid.clone())),
            5 => drop({
                let lucky = next(3);
                queue.wake(now, |kind| kind.spec.requests.cpu_milli == lucky)
            }),
            choice => {
                let Some(uid) = flying.pop() else { continue };
                if !queue.get(&uid).is_some_and(QueuedPod::is_in_flight) {
                    continue;
                }
                if choice == 6 {
                    wait(&mut queue, &uid, now, "w")
                } else {
                    queue.retry(&uid, now, &"r".into())
                };
            }
        }
        let mut counted = [0; 4];
        for (_, part) in queue.pods() {
            part.into_iter().for_each(|part| counted[part as usize] += 1);
        }
        assert_eq!(lengths(&queue), counted);
        let waiting: usize = queue.waiting.values().map(|class| class.pods.len()).sum();
        assert_eq!((waiting, queue.waiting.values().any(|class| class.pods.is_empty())), (counted[2], false));
    }
}
