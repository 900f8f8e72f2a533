//! The only source of chance: SplitMix64 (Steele, Lea and Flood 2014), a counter and a mixing function.
//!
//! Invariant: the same seed gives the same numbers on every platform. Everything is integer arithmetic modulo 2^64; what
//! turns numbers into choices uses integers too, because `exp`, `ln` and `cos` differ between math libraries in their last
//! bit, and one bit is enough to order two pods differently.

/// A stream of pseudo-random numbers, chosen by its seed.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The stream of `seed`. `stream` tells apart streams of one seed that must not influence each other: drawing one number
    /// more for the arrivals must not change all lifetimes.
    pub fn new(seed: u64, stream: u64) -> Rng {
        Rng { state: mix(seed) ^ mix(stream.wrapping_add(GOLDEN)) }
    }

    /// The next number, uniform over all 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// A number from 0 to `bound - 1`; zero when `bound` is zero. The bias of the multiplication is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        (wide >> 64) as u64
    }

    /// The index of one of `weights`, each chosen in proportion to its weight; zero when all weights are zero.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, &weight) in weights.iter().enumerate() {
            if left < weight {
                return index;
            }
            left -= weight;
        }
        0
    }
}

/// 2^64 divided by the golden ratio, made odd: the step of SplitMix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_of_splitmix64() {
        let mut rng = Rng { state: 1_234_567 };
        let drawn: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn streams_of_a_seed_differ_and_repeat() {
        let draw = |seed, stream| Rng::new(seed, stream).next_u64();
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }

    #[test]
    fn choices_follow_their_weights() {
        let mut rng = Rng::new(1, 0);
        let mut counts = [0u32; 3];
        for _ in 0..10_000 {
            counts[rng.weighted(&[1, 0, 3])] += 1;
        }
        assert!(counts[1] == 0 && (2_300..2_700).contains(&counts[0]), "{counts:?}");
        assert!((0..1_000).all(|_| rng.below(5) < 5));
        assert_eq!((rng.below(0), rng.weighted(&[0, 0])), (0, 0));
    }
}
