//! Crate `runtime`: moves bytes and time: sockets, framing, clocks, logging, configuration, a page over HTTP.
//!
//! Absent: decisions about the file system; TLS, which comes later.

pub mod addr;
pub mod alarm;
mod attend;
pub mod clock;
pub mod config;
mod conn;
pub mod connect;
pub mod http;
pub mod listen;
pub mod log;
pub mod memory;
pub mod peer;
pub mod port;
pub mod process;
pub mod spin;
mod stream;
mod wire;
pub mod words;

pub use addr::Addr;
pub use alarm::Alarm;
pub use clock::Clock;
pub use config::Config;
pub use connect::{SocketConnector, within_process};
pub use listen::{Acceptor, Clients, Door, Guest, ListenError, Listener, Meant, Origin};
pub use log::{Log, LogLevel};
pub use peer::SocketPeer;
