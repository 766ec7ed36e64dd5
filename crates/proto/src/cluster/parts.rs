//! A map, or a delta, that comes in several messages.
//!
//! Absent: what it says (`codec.rs`, `delta.rs`); who is told what.

use crate::message::MAP_PARTS_MAX;

/// What has come so far over one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapParts {
    version: u64,
    parts: u16,
    /// The part that comes next.
    next: u16,
    bytes: Vec<u8>,
}

impl MapParts {
    /// Takes a part in; the whole, if it was the last. A part that does not go on where the one before ended begins anew, or is
    /// dropped: whoever waits for that map asks for it again.
    #[must_use]
    pub fn take(&mut self, version: u64, (part, parts): (u16, u16), bytes: Vec<u8>) -> Option<Vec<u8>> {
        if (part, parts) == (0, 1) {
            // As most are. What was gathered of an older one is of no use.
            *self = Self::default();
            return Some(bytes);
        }
        if part == 0 && parts <= MAP_PARTS_MAX {
            *self = Self { version, parts, next: 0, bytes: Vec::new() };
        }
        if (version, part, parts) != (self.version, self.next, self.parts) {
            *self = Self::default();
            return None;
        }
        self.bytes.extend(bytes);
        self.next += 1;
        (self.next == self.parts).then(|| std::mem::take(self).bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{MAP_PART_BYTES_MAX, ServerMsg};

    fn of(message: ServerMsg) -> (u64, (u16, u16), Vec<u8>) {
        let ServerMsg::Map { version, part, parts, bytes } = message else { panic!("{message:?}") };
        (version, (part, parts), bytes)
    }

    #[test]
    fn what_is_cut_is_put_together_and_nothing_else_is() {
        let whole: Vec<u8> = (0..2 * MAP_PART_BYTES_MAX + 9).map(|at| (at / 7) as u8).collect();
        let messages = ServerMsg::maps(5, &whole);
        assert_eq!(messages.len(), 3);
        let mut parts = MapParts::default();
        let mut take = |message: &ServerMsg| {
            let (version, part, bytes) = of(message.clone());
            parts.take(version, part, bytes)
        };
        assert_eq!((take(&messages[0]), take(&messages[1])), (None, None));
        assert_eq!(take(&messages[2]).as_ref(), Some(&whole));
        assert_eq!((take(&messages[1]), take(&messages[2])), (None, None), "without a beginning");
        // Another one begins in between; one is lost.
        take(&messages[0]);
        let short = ServerMsg::maps(6, b"short");
        assert_eq!(take(&short[0]).as_deref(), Some(&b"short"[..]));
        assert_eq!((take(&messages[1]), take(&messages[2])), (None, None));
        take(&messages[0]);
        assert_eq!((take(&messages[2]), take(&messages[1])), (None, None));
        take(&messages[0]);
        take(&messages[1]);
        assert_eq!(take(&messages[2]), Some(whole));
    }

    #[test]
    fn as_much_as_a_registry_holds_is_said_and_no_more() {
        let most = vec![1; crate::cluster::MAP_BYTES_MAX];
        assert_eq!(ServerMsg::maps(1, &most).len(), usize::from(MAP_PARTS_MAX));
        assert!(ServerMsg::maps(1, &vec![1; most.len() + 1]).is_empty());
    }
}
