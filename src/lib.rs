pub mod mig;
