//! Room `mount`.
