//! Groups of requests as patterns, for matches that must not end in `_`: each request is in one group or stands alone, so a new
//! one either joins a group, and is treated as its others are, or is missing wherever requests are told apart.
//!
//! In no group: Open, TmpFile and Release; Read; Rewrite.
//!
//! Absent: what a match does with them.

/// What makes, removes or moves names.
#[macro_export]
macro_rules! naming_requests {
    () => {
        $crate::request::Request::MkNod { .. }
            | $crate::request::Request::MkDir { .. }
            | $crate::request::Request::Symlink { .. }
            | $crate::request::Request::Link { .. }
            | $crate::request::Request::Unlink { .. }
            | $crate::request::Request::RmDir { .. }
            | $crate::request::Request::Rename { .. }
            | $crate::request::Request::Create { .. }
    };
}

/// What looks at names and attributes, and changes nothing.
#[macro_export]
macro_rules! looking_requests {
    () => {
        $crate::request::Request::Lookup { .. }
            | $crate::request::Request::GetAttr { .. }
            | $crate::request::Request::ReadLink { .. }
            | $crate::request::Request::ReadDir { .. }
            | $crate::request::Request::Seek { .. }
            | $crate::request::Request::StatFs
            | $crate::request::Request::GetXattr { .. }
            | $crate::request::Request::ListXattr { .. }
            | $crate::request::Request::TestLock { .. }
            | $crate::request::Request::Access { .. }
            | $crate::request::Request::Parent { .. }
    };
}

/// What sets attributes of one inode.
#[macro_export]
macro_rules! setting_requests {
    () => {
        $crate::request::Request::SetAttr { .. }
            | $crate::request::Request::SetXattr { .. }
            | $crate::request::Request::RemoveXattr { .. }
    };
}

/// What changes bytes of a file.
#[macro_export]
macro_rules! writing_requests {
    () => {
        $crate::request::Request::Write { .. }
            | $crate::request::Request::Fallocate { .. }
            | $crate::request::Request::CopyRange { .. }
    };
}

/// What takes and drops locks.
#[macro_export]
macro_rules! locking_requests {
    () => {
        $crate::request::Request::SetLock { .. } | $crate::request::Request::ReleaseLocks { .. }
    };
}

/// What makes durable.
#[macro_export]
macro_rules! syncing_requests {
    () => {
        $crate::request::Request::Fsync { .. } | $crate::request::Request::SyncFs
    };
}

/// What one rank asks another.
#[macro_export]
macro_rules! rank_requests {
    () => {
        $crate::request::Request::Replicate { .. }
            | $crate::request::Request::Facts { .. }
            | $crate::request::Request::Totals { .. }
            | $crate::request::Request::Heat { .. }
            | $crate::request::Request::Hand { .. }
            | $crate::request::Request::Unpin { .. }
            | $crate::request::Request::SetTimes { .. }
            | $crate::request::Request::Opened { .. }
            | $crate::request::Request::Sessions { .. }
            | $crate::request::Request::Holders { .. }
            | $crate::request::Request::Transact { .. }
    };
}

/// Every request there is: the last arm of a match that is about a few. A new request that is in no group is added here when those
/// matches, which this name finds, have been looked through.
#[macro_export]
macro_rules! every_request {
    () => {
        $crate::naming_requests!()
            | $crate::looking_requests!()
            | $crate::setting_requests!()
            | $crate::writing_requests!()
            | $crate::locking_requests!()
            | $crate::syncing_requests!()
            | $crate::rank_requests!()
            | $crate::request::Request::Open { .. }
            | $crate::request::Request::TmpFile { .. }
            | $crate::request::Request::Release { .. }
            | $crate::request::Request::Read { .. }
            | $crate::request::Request::Rewrite { .. }
    };
}

#[cfg(test)]
mod tests {
    use crate::request::Request;

    /// That it compiles is the proof that nothing is missing.
    #[test]
    fn each_request_is_in_a_group_or_alone() {
        let group = |request: &Request| match request {
            naming_requests!() => "naming",
            looking_requests!() => "looking",
            setting_requests!() => "setting",
            writing_requests!() => "writing",
            locking_requests!() => "locking",
            syncing_requests!() => "syncing",
            rank_requests!() => "ranks",
            Request::Open { .. }
            | Request::TmpFile { .. }
            | Request::Release { .. }
            | Request::Read { .. }
            | Request::Rewrite { .. } => "alone",
        };
        assert_eq!(group(&Request::StatFs), "looking");
        assert_eq!(group(&Request::SyncFs), "syncing");
    }
}
