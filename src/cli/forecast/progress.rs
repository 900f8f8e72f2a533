//! The bar on stderr; nothing unless that is a terminal.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that is gone when the work is done.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar that counts these.
    pub fn of(what: &'static str) -> Progress {
        let target = match io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let template = "{prefix} {pos} of {len} {wide_bar} {percent:>3} % {elapsed} left {eta} {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(what);
        Progress { bar }
    }

    /// So many of so many are done.
    pub fn show(&self, done: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
    }

    /// Says something beside the bar.
    pub fn tell(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
