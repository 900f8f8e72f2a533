//! Integration tests, in one binary so that the library is linked once.

#![allow(clippy::disallowed_methods, reason = "a test may ask its environment")]

mod architecture;
mod checker;
mod cli;
mod config;
mod forecast;
mod fractional;
mod greedy_gap;
mod manifests;
mod mig_inputs;
mod mig_tables;
mod pack;
mod parvagpu;
mod shared;
mod simulate;
