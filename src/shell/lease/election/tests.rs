//! The election as a table: what is known, what comes next.
