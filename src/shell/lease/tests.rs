//! The election task against an API server of our own making.
