//! Room `fsck`.
