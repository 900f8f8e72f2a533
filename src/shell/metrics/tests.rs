//! The rendered text, since that is what dashboards depend on.
