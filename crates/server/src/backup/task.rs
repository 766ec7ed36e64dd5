//! The one backup that runs in a server's background, and how it goes.
//!
//! Absent: schedules.

use super::{BackupError, Summary, create};
use crate::server::Server;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
enum State {
    #[default]
    Never,
    Running,
    Done(Box<Summary>),
    Failed {
        why: String,
        damaged: bool,
        /// It can succeed in another state of the server.
        state: bool,
    },
}

/// The last backup.
#[derive(Debug, Default)]
pub(crate) struct Task {
    state: Mutex<State>,
}

impl Task {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For `backup status`.
    pub(crate) fn report(&self) -> Value {
        match &*self.lock() {
            State::Never => json!({ "state": "never" }),
            State::Running => json!({ "state": "running" }),
            State::Done(s) => json!({
                "state": "done",
                "records": s.records,
                "files": s.files,
                "data_bytes": s.data_bytes,
                "bytes": s.bytes,
            }),
            State::Failed { why, damaged, state } => {
                json!({ "state": "failed", "why": why, "damaged": damaged, "wrong_state": state })
            }
        }
    }
}

/// Starts a backup in the background.
///
/// # Errors
/// `Busy`; `Io` when there is no thread for it.
pub(crate) fn start(server: &Arc<Server>, path: PathBuf) -> Result<(), BackupError> {
    {
        let mut state = server.backup.lock();
        if matches!(*state, State::Running) {
            return Err(BackupError::Busy);
        }
        *state = State::Running;
    }
    let shared = server.clone();
    let thread = std::thread::Builder::new().name("backup".into()).spawn(move || {
        let result = create(&shared, &path);
        if let Err(e) = &result {
            shared.log.error("backup", "failed", &[("path", &path.display()), ("error", e)]);
        }
        *shared.backup.lock() = match result {
            Ok(summary) => State::Done(Box::new(summary)),
            Err(e) => State::Failed { why: e.to_string(), damaged: e.is_damage(), state: e.is_state() },
        };
    });
    if let Err(e) = thread {
        *server.backup.lock() = State::Failed { why: e.to_string(), damaged: false, state: false };
        return Err(e.into());
    }
    Ok(())
}
