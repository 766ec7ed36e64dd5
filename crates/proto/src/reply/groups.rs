//! Groups of replies as patterns, as `request/groups.rs` has them of requests: a new reply is missing wherever replies are told
//! apart until somebody has said what it is.
//!
//! Absent: what a match does with them.

/// Replies that show attributes of nothing.
#[macro_export]
macro_rules! plain_replies {
    () => {
        $crate::reply::Reply::Ok
            | $crate::reply::Reply::Target(_)
            | $crate::reply::Reply::Data(_)
            | $crate::reply::Reply::Offset(_)
            | $crate::reply::Reply::StatFs(_)
            | $crate::reply::Reply::Xattr(_)
            | $crate::reply::Reply::XattrNames(_)
            | $crate::reply::Reply::Lock(_)
            | $crate::reply::Reply::Node(_)
            | $crate::reply::Reply::Record { .. }
            | $crate::reply::Reply::Totals(_)
            | $crate::reply::Reply::Seen(_)
            | $crate::reply::Reply::Further(_)
    };
}

/// Every reply there is: the last arm of a match that is about a few. A new reply that is not plain is added here when those
/// matches, which this name finds, have been looked through.
#[macro_export]
macro_rules! every_reply {
    () => {
        $crate::plain_replies!()
            | $crate::reply::Reply::Attr(_)
            | $crate::reply::Reply::Created { .. }
            | $crate::reply::Reply::Entries { .. }
            | $crate::reply::Reply::Written { .. }
    };
}

#[cfg(test)]
mod tests {
    use crate::reply::Reply;

    /// That it compiles is the proof that nothing is missing.
    #[test]
    fn each_reply_is_plain_or_alone() {
        let shows = |reply: &Reply| match reply {
            plain_replies!() => false,
            Reply::Attr(_) | Reply::Created { .. } | Reply::Entries { .. } | Reply::Written { .. } => true,
        };
        assert!(!shows(&Reply::Ok));
        assert!(shows(&Reply::Entries { entries: Vec::new(), end: true }));
    }
}
