//! Recovery on a whole Hooklane: what an endpoint missed, through a kill; an endpoint that was down
//! for longer than the schedule; one with a huge backlog beside quiet ones.

mod backlog;
mod down;
mod missed;

use hooklane_testkit::receiver::Options;
use hooklane_testkit::{Receiver, Reply};

/// A receiver that answers everything with success and keeps so many requests.
async fn receiver(keep: u64) -> Receiver {
    let receiver = Receiver::start_with(Options {
        keep: usize::try_from(keep).unwrap(),
        keep_bytes: 256 << 20,
        ..Options::default()
    })
    .await
    .unwrap();
    receiver.fallback(Reply::status(204));
    receiver
}
