//! Lines as a collector would read them.
