//! Tells the person who waits what is going on, on standard error.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(200);

/// One line that changes, where standard error is a terminal, and the steps in any case.
#[derive(Debug, Clone)]
pub struct Progress {
    bar: ProgressBar,
    is_silent: bool,
}

impl Progress {
    /// Begins.
    #[must_use]
    pub fn begin() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self {
            bar,
            is_silent: false,
        }
    }

    /// Says nothing, for tests.
    #[must_use]
    pub fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            is_silent: true,
        }
    }

    /// A new step, which stays in view.
    pub fn step(&self, text: &str) {
        if self.is_silent {
            return;
        }
        let line = format!("loadtest: {text}");
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    /// How far the present step is.
    pub fn show(&self, text: String) {
        self.bar.set_message(text);
    }

    /// Ends.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
