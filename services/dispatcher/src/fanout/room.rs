//! Answering `room.<p>`: the question goes to every lane it names, and the answer leaves when the
//! last of them has spoken or is gone.

use std::sync::{Mutex, PoisonError};

use hooklane_proto::room::{Reply, Room};
use tokio::sync::oneshot;

use super::{Msg, Ref};

/// Gathers lanes' answers; each lane asked holds it, and dropping the last one sends it on.
pub(crate) struct Collector {
    rooms: Mutex<Vec<Room>>,
    reply: Mutex<Option<oneshot::Sender<Reply>>>,
    fanout: Ref,
}

impl Collector {
    pub(super) fn new(fanout: Ref, reply: oneshot::Sender<Reply>) -> Self {
        Self {
            rooms: Mutex::default(),
            reply: Mutex::new(Some(reply)),
            fanout,
        }
    }

    /// A lane's answer.
    pub(crate) fn add(&self, room: Room) {
        self.rooms
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(room);
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let rooms = std::mem::take(self.rooms.get_mut().unwrap_or_else(PoisonError::into_inner));
        let reply = self.reply.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(reply) = reply.take() {
            // Through the fan-out, which keeps the room for what will be claimed. If it is gone
            // the asker gets no answer, and claims nothing.
            let _ = self.fanout.cast(Msg::Answered { rooms, reply });
        }
    }
}
