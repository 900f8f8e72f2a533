//! The real server on a free port, asked over TCP.
