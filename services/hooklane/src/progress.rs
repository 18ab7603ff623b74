//! Progress of long work: on standard error, and only where that is a terminal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar towards `total`, or a counter where the end is not known.
pub(crate) fn bar(what: &'static str, total: Option<u64>, json: bool) -> ProgressBar {
    let target = if json || !std::io::stderr().is_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(total, target).with_message(what);
    let template = match total {
        Some(_) => "{msg} {wide_bar} {human_pos}/{human_len} {eta}",
        None => "{msg} {spinner} {human_pos} ({per_sec})",
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
