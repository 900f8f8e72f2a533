//! The permission to act, as something that runs out by itself.
//!
//! Invariant: a token is valid only before a deadline that was set by a successful write of the Lease. Asking costs one
//! atomic read and one reading of the clock, so that every single write can afford it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// No deadline has been given, or it was taken back.
const NEVER: u64 = 0;

/// There is no election.
const ALWAYS: u64 = u64::MAX;

/// Whether this process may write now. Clones share one deadline.
#[derive(Clone, Debug)]
pub struct LeaderToken {
    /// Deadlines count from here.
    base: Instant,
    /// Nanoseconds after `base`: 584 years of them.
    deadline: Arc<AtomicU64>,
}

impl LeaderToken {
    /// A token that is always valid: for a scheduler without leader election.
    pub fn unelected() -> LeaderToken {
        LeaderToken::with(ALWAYS)
    }

    /// A token that is not valid until its deadline is set.
    pub fn standby() -> LeaderToken {
        LeaderToken::with(NEVER)
    }

    fn with(deadline: u64) -> LeaderToken {
        LeaderToken { base: Instant::now(), deadline: Arc::new(AtomicU64::new(deadline)) }
    }

    /// Whether a write may be sent now. To be asked immediately before each one: after a pause of the process, however
    /// long, the answer is no.
    pub fn is_valid(&self) -> bool {
        self.is_valid_at(Instant::now())
    }

    /// [`LeaderToken::is_valid`] at a given moment.
    pub fn is_valid_at(&self, now: Instant) -> bool {
        match self.deadline.load(Ordering::Acquire) {
            ALWAYS => true,
            deadline => self.nanos(now) < deadline,
        }
    }

    /// Makes the token valid until `deadline`.
    pub(super) fn extend_to(&self, deadline: Instant) {
        self.deadline.store(self.nanos(deadline), Ordering::Release);
    }

    /// Makes the token invalid.
    pub(super) fn revoke(&self) {
        self.deadline.store(NEVER, Ordering::Release);
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.base).as_nanos()).unwrap_or(ALWAYS - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Tests that a token runs out without anybody's doing.
    #[test]
    fn runs_out_by_itself() {
        let token = LeaderToken::standby();
        let now = Instant::now();
        assert!(!token.is_valid_at(now));
        token.extend_to(now + Duration::from_secs(10));
        let shared = token.clone();
        assert!(shared.is_valid_at(now));
        assert!(shared.is_valid_at(now + Duration::from_millis(9_999)));
        assert!(!shared.is_valid_at(now + Duration::from_secs(10)));
        token.revoke();
        assert!(!shared.is_valid_at(now));
    }

    #[test]
    fn without_election_always_valid() {
        let token = LeaderToken::unelected();
        assert!(token.is_valid());
        assert!(token.is_valid_at(Instant::now() + Duration::from_secs(1 << 30)));
    }
}
