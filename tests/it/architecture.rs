//! The layers of `src/`, held by reading every path in it.
//!
//! Invariant: a pure module names nothing that does I/O, and a module names only those below it. The rules are the
//! tables at the top; the rest reads Rust just well enough to find the paths, comments and strings left out.

use std::fs;
use std::path::{Path, PathBuf};

/// A top-level module of `src/` and the modules of this crate it may name.
struct Layer {
    module: &'static str,
    /// Named by the engine's side of the picture: no clock, no I/O, no Kubernetes.
    pure: bool,
    knows: &'static [&'static str],
}

const fn pure(module: &'static str, knows: &'static [&'static str]) -> Layer {
    Layer { module, pure: true, knows }
}

const fn outer(module: &'static str, knows: &'static [&'static str]) -> Layer {
    Layer { module, pure: false, knows }
}

/// From the bottom up: a module knows only modules above its own line here.
const LAYERS: &[Layer] = &[
    pure("mig", &[]),
    pure("model", &["mig"]),
    // Clusters as text: compiled for unit tests only, so everyone may name it.
    pure("fixture", &["mig", "model"]),
    pure("solver", &["mig", "model"]),
    pure("forecast", &["mig", "model"]),
    pure("cache", &["mig", "model"]),
    pure("cycle", &["mig", "model", "solver", "cache"]),
    pure("planner", &["mig", "model", "solver", "forecast", "cache", "cycle"]),
    pure("safety", &["mig", "model", "planner"]),
    pure("fact", &["mig", "model", "forecast", "planner", "safety"]),
    pure("event", &["mig", "model", "forecast", "planner", "safety"]),
    pure("effect", &["mig", "model", "forecast", "planner", "safety", "fact"]),
    pure("queue", &["mig", "model", "fact", "event"]),
    pure("engine", INSIDE),
    outer("config", &[]),
    outer("agent", &["mig", "model", "solver"]),
    outer("shell", ENGINE_AND_CONFIG),
    outer("sim", ENGINE_AND_CONFIG),
    outer("cli", EVERYTHING),
];

const INSIDE: &[&str] = &[
    "mig", "model", "solver", "forecast", "cache", "cycle", "planner", "safety", "fact", "event", "effect",
    "queue",
];

const ENGINE_AND_CONFIG: &[&str] = &[
    "mig", "model", "solver", "forecast", "cache", "cycle", "planner", "safety", "fact", "event", "effect",
    "queue", "engine", "config",
];

const EVERYTHING: &[&str] = &[
    "mig", "model", "solver", "forecast", "cache", "cycle", "planner", "safety", "fact", "event", "effect",
    "queue", "engine", "config", "agent", "shell", "sim",
];

/// What a pure module never names: the beginnings of paths, the last part of each as a prefix (`prometheus` covers
/// `prometheus_client`).
const IMPURE: &[&str] = &[
    "tokio",
    "kube",
    "k8s_openapi",
    "prometheus",
    "nvml",
    "reqwest",
    "axum",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
];

/// Crates that one place has to itself, by the beginning of their name and of the file's path in `src/`.
const ALONE: &[(&str, &str)] = &[("candle", "forecast"), ("serde_yaml", "config/yaml.rs")];

/// Modules that may allow the calls and types `clippy.toml` forbids; `lib.rs` is where the others deny them.
const MAY_ALLOW: &[&str] = &["shell", "sim", "cli", "lib"];

#[test]
fn the_layers_hold() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut problems = Vec::new();
    for path in rust_files(&root) {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
        problems.extend(check(&name, &fs::read_to_string(&path).unwrap()));
    }
    assert!(problems.is_empty(), "the layers of src/ are broken:\n{}", problems.join("\n"));
}

#[test]
fn the_table_is_ordered() {
    for (line, layer) in LAYERS.iter().enumerate() {
        for known in layer.knows {
            let above =
                LAYERS[..line].iter().any(|other| other.module == *known && (other.pure || !layer.pure));
            assert!(
                above,
                "{} may not know {known}: it is not above it in LAYERS, or not pure",
                layer.module
            );
        }
    }
}

/// Asserts how many problems a source has, and that each names `part`.
#[track_caller]
fn finds(file: &str, body: &str, count: usize, part: &str) {
    let problems = check(file, &format!("//! Doc.\n{body}"));
    assert!(
        problems.len() == count && problems.iter().all(|p| p.contains(part)),
        "{file}: {body:?}: {problems:?}"
    );
}

#[test]
fn the_check_finds_what_it_looks_for() {
    finds("queue/hints.rs", "use tokio::time;", 1, "tokio");
    finds("engine.rs", "fn f() { std::fs::read(p); }", 1, "std::fs");
    finds("engine.rs", "use std::{fmt, fs::{self, File}};", 2, "std::fs");
    finds("engine.rs", "use std::process;", 1, "std::process");
    finds("cycle.rs", "use ::kube::Client;", 1, "kube");
    finds("fact.rs", "use prometheus_client::registry;", 1, "prometheus");
    finds("fact.rs", "extern crate axum;", 1, "axum");
    finds("mig/profile.rs", "use crate::model::Node;", 1, "model");
    finds("model.rs", "use crate::{mig::Profile, cycle::{a, b}};", 2, "cycle");
    finds("cache.rs", "fn f(e: &crate::engine::Engine) {}", 1, "engine");
    finds("cache.rs", "use super::engine::Engine;", 1, "engine");
    finds("cache/node.rs", "use super::super::engine::Engine;", 1, "engine");
    finds("cache.rs", "mod tests { use super::super::engine::Engine; }", 1, "engine");
    finds("shell/run.rs", "use crate::cli::Cli;", 1, "cli");
    finds("engine.rs", "use crate::config::Config;", 1, "config");
    finds("planner.rs", "use candle_core::Tensor;", 1, "candle");
    finds("config.rs", "fn f() { serde_yaml::from_str(x) }", 1, "serde_yaml");
    finds("cycle.rs", "#![allow(clippy::disallowed_types)]", 1, "disallowed_types");
    finds("surprise/new.rs", "", 1, "place it in LAYERS");
    assert_eq!(check("mig.rs", "// Doc.\n").len(), 1);
    // Whatever follows a string or a character with a quote is still read.
    finds("engine.rs", r##"fn f() { g('"', b'\'', "\"", r#"""#, 'a'); } use tokio::x;"##, 1, "tokio");
    finds("engine.rs", "/* a /* b */ c */ fn f<'a>(x: &'a str) {} use tokio::x;", 1, "tokio");
}

#[test]
fn the_check_lets_the_rest_pass() {
    finds("queue/hints.rs", "//! [`tokio::time`] and \"x\".\nconst A: &str = \"tokio::time\";", 0, "");
    finds("queue.rs", "use crate::model::{Pod, Time};\nuse std::{fmt, collections::BTreeMap};", 0, "");
    finds("cache/node.rs", "use super::engine::Engine;", 0, "");
    finds("cache.rs", "mod tests { use super::engine; } fn f() { self::engine::g(); a.kube.b(); }", 0, "");
    finds("mig.rs", "use super::mig::Profile; fn f(kube: u8) -> u8 { kube }", 0, "");
    finds("shell/watch.rs", "use kube::Api; use crate::engine::Engine; use std::net;", 0, "");
    finds("forecast/lstm.rs", "use candle_nn::LSTM;", 0, "");
    finds("config/yaml.rs", "use serde_yaml::Value;", 0, "");
    finds("main.rs", "use mig_scheduler::cli::Cli;", 0, "");
}

/// The `.rs` files under `dir`, in order.
fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let files = |path: PathBuf| if path.is_dir() { rust_files(&path) } else { vec![path] };
    entries.into_iter().flat_map(files).filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
}

/// What is wrong with the file `name` (its path in `src/`), one line each.
fn check(name: &str, source: &str) -> Vec<String> {
    let module = name.split(['/', '.']).next().unwrap();
    let tokens = tokens(source);
    let mut problems = Vec::new();
    if !source.starts_with("//!") {
        problems.push("begins without a module comment (//!)".to_owned());
    }
    let inside = paths(&tokens, module_depth(name));
    problems.extend(inside.iter().flat_map(|path| misplaced(name, path)));
    match LAYERS.iter().find(|layer| layer.module == module) {
        Some(layer) => problems.extend(inside.iter().filter_map(|path| broken(layer, path))),
        None if module == "lib" || module == "main" => {}
        None => problems
            .push(format!("the module {module} is new; place it in LAYERS of tests/it/architecture.rs")),
    }
    if !MAY_ALLOW.contains(&module) {
        let allowed = tokens.iter().filter(|token| token.starts_with("disallowed_"));
        problems.extend(allowed.map(|token| format!("touches clippy::{token}; only {MAY_ALLOW:?} may")));
    }
    problems.into_iter().map(|problem| format!("src/{name}: {problem}")).collect()
}

/// How a path breaks the rules of a layer.
fn broken(layer: &Layer, path: &[&str]) -> Option<String> {
    if let ["crate", known, ..] = path {
        let module = LAYERS.iter().any(|other| other.module == *known);
        let refused = module && ![layer.module, "fixture"].contains(known) && !layer.knows.contains(known);
        return refused.then(|| format!("{} may not know {known}: {}", layer.module, path.join("::")));
    }
    let impure = layer.pure && IMPURE.iter().any(|start| begins(path, start));
    impure.then(|| format!("{} is pure and may not name {}", layer.module, path.join("::")))
}

/// Crates that belong elsewhere.
fn misplaced(name: &str, path: &[&str]) -> Option<String> {
    let (_, place) = ALONE.iter().find(|(start, _)| begins(path, start))?;
    (!name.starts_with(place)).then(|| format!("{} belongs to src/{place} alone", path.join("::")))
}

fn begins(path: &[&str], start: &str) -> bool {
    let start: Vec<&str> = start.split("::").collect();
    let (last, exact) = start.split_last().unwrap();
    path.starts_with(exact) && path.get(exact.len()).is_some_and(|part| part.starts_with(last))
}

/// How many `super` lead from the file to the crate's root.
fn module_depth(name: &str) -> usize {
    if name == "lib.rs" || name == "main.rs" { 0 } else { name.split('/').count() }
}

/// Every path of two parts or more, and every crate imported by its bare name; groups are written out, and what
/// reaches the root by `super` begins with `crate`.
fn paths<'a>(tokens: &[&'a str], depth: usize) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    // For each open brace, whether it opened a module.
    let mut braces = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at] {
            "{" => braces.push(at >= 2 && tokens[at - 2] == "mod"),
            "}" => drop(braces.pop()),
            token if is_name(token) && !matches!(before(tokens, at), "." | "mod" | "fn") => {
                let mut ends = Vec::new();
                let imported = matches!(before(tokens, at), "use" | "crate");
                at = read_path(tokens, at, &mut Vec::new(), &mut ends);
                let depth = depth + braces.iter().filter(|module| **module).count();
                ends.retain(|path| path.len() > 1 || imported);
                found.extend(ends.into_iter().map(|path| from_root(path, depth)));
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn before<'a>(tokens: &[&'a str], at: usize) -> &'a str {
    if at == 0 { "" } else { tokens[at - 1] }
}

/// Reads the path that begins at `at`, adds each of its ends to `found`, and returns where it ends.
fn read_path<'a>(
    tokens: &[&'a str],
    mut at: usize,
    parts: &mut Vec<&'a str>,
    found: &mut Vec<Vec<&'a str>>,
) -> usize {
    let length = parts.len();
    while at < tokens.len() && is_name(tokens[at]) {
        parts.push(tokens[at]);
        at += 1;
        match (tokens.get(at), tokens.get(at + 1)) {
            (Some(&"::"), Some(&"{")) => {
                at = read_group(tokens, at + 2, parts, found);
                parts.truncate(length);
                return at;
            }
            (Some(&"::"), Some(next)) if is_name(next) => at += 1,
            _ => break,
        }
    }
    found.push(parts.clone());
    parts.truncate(length);
    at
}

/// Reads the members of a `{…}` group up to and with its closing brace.
fn read_group<'a>(
    tokens: &[&'a str],
    mut at: usize,
    parts: &mut Vec<&'a str>,
    found: &mut Vec<Vec<&'a str>>,
) -> usize {
    while at < tokens.len() && tokens[at] != "}" {
        let named = is_name(tokens[at]);
        at = if named { read_path(tokens, at, parts, found) } else { at + 1 };
        // The name after `as` is ours, not a part of the path.
        if tokens.get(at) == Some(&"as") {
            at += 2;
        }
    }
    at + 1
}

/// The path with `super`s that lead to the crate's root replaced by `crate`.
fn from_root(path: Vec<&str>, depth: usize) -> Vec<&str> {
    let path = if path[0] == "self" { path[1..].to_vec() } else { path };
    let supers = path.iter().take_while(|part| **part == "super").count();
    if supers == 0 || supers < depth {
        return path;
    }
    [&["crate"], &path[supers..]].concat()
}

/// An identifier that may be a part of a path.
fn is_name(token: &str) -> bool {
    let keywords =
        ["use", "pub", "as", "in", "for", "impl", "extern", "mod", "fn", "return", "where", "dyn", "ref"];
    token.starts_with(|c: char| c.is_alphabetic() || c == '_') && !keywords.contains(&token)
}

/// Identifiers, `::` and single other characters, without comments, strings, characters, lifetimes and spaces.
fn tokens(source: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let (length, keep) = token(rest, first);
        if keep {
            tokens.push(&rest[..length]);
        }
        rest = &rest[length..];
    }
    tokens
}

/// Length of the first token, and whether it counts.
fn token(rest: &str, first: char) -> (usize, bool) {
    let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), false);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), false);
    }
    if let Some(length) = raw_string(rest) {
        return (length, false);
    }
    match first {
        '"' => (quoted(rest, '"'), false),
        '\'' if is_character(rest) => (quoted(rest, '\''), false),
        ':' if rest.starts_with("::") => (2, true),
        _ if word > 0 => (word, true),
        _ => (first.len_utf8(), !first.is_whitespace()),
    }
}

/// Tells `'a'` and `'\n'` from the lifetime `'a`.
fn is_character(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    chars.next() == Some('\\') || chars.next() == Some('\'')
}

/// Length of a literal with its quotes; a backslash takes the next character with it.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    rest.len()
}

/// Length of a literal such as `r#"…"#`.
fn raw_string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let text = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = rest.len() - text.len();
    Some(text.find(&end).map_or(rest.len(), |at| start + at + end.len()))
}

/// Length of a block comment, which may hold others.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let step = match rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth + 1, 2),
            [b'*', b'/', ..] => (depth - 1, 2),
            _ => (depth, 1),
        };
        (depth, at) = (step.0, at + step.1);
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}
