//! Messages queued while the daemon is disconnected (SBRP-CLIENT-05).

use crate::sealed::Plaintext;

/// The limits of the queue; more is refused, so that the program notices.
const MOST_MESSAGES: usize = 256;
const MOST_BYTES: usize = 1 << 20;

/// In sending order; still plaintext, so that no sequence number is spent on them.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    messages: Vec<Plaintext>,
    bytes: usize,
}

impl SendQueue {
    /// Returns the message if the queue is full.
    pub(super) fn push(&mut self, message: Plaintext) -> Result<(), Plaintext> {
        let bytes = self.bytes + message.len();
        if self.messages.len() >= MOST_MESSAGES || bytes > MOST_BYTES {
            return Err(message);
        }
        self.bytes = bytes;
        self.messages.push(message);
        Ok(())
    }

    pub(super) fn into_messages(self) -> Vec<Plaintext> {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbrp_client_05_what_waits_is_bounded_in_number_and_size() {
        let mut queued = SendQueue::default();
        for _ in 0..MOST_MESSAGES {
            queued.push(vec![1].into()).unwrap();
        }
        assert_eq!(queued.push(vec![2].into()), Err(vec![2].into()));
        let mut queued = SendQueue::default();
        queued.push(vec![0; MOST_BYTES].into()).unwrap();
        assert_eq!(queued.push(vec![2].into()), Err(vec![2].into()));
        queued.push(Plaintext::default()).unwrap();
        assert_eq!(queued.into_messages().len(), 2);
    }
}
