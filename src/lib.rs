
pub mod mig;
