//! Mounts the null responder until it is unmounted.
//! Absent: daemonising, and any option parser beyond this list of words.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use fuse::abi::InitFlags;
use fuse::null::{Null, NullOptions};
use fuse::{Config, Transport, mount};

const USAGE: &str = "usage: null DIR [uring|classic] [noflush] [direct] [readers=N] [data=FOLDER]";

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let path = PathBuf::from(words.next().ok_or(USAGE)?);
    let mut options = NullOptions::default();
    // ACLs would add a GETXATTR per node that no responder of the baselines had.
    let mut config = Config { wanted: Config::WANTED.without(InitFlags::POSIX_ACL), ..Config::default() };
    for word in words {
        match word.split_once('=').unwrap_or((&word, "")) {
            ("uring", _) => config.transport = Transport::Uring,
            ("classic", _) => config.transport = Transport::Classic,
            ("noflush", _) => options.flush = false,
            ("direct", _) => options.direct_io_create = true,
            ("readers", count) => config.readers = count.parse()?,
            ("data", folder) => options.data_folder = Some(PathBuf::from(folder)),
            _ => return Err(format!("unknown word {word}\n{USAGE}").into()),
        }
    }
    let session = mount(&path, &config, Arc::new(Null::new(options)?))?;
    eprintln!(
        "{} is mounted, transport {:?}, {:?}",
        path.display(),
        session.transport(),
        session.negotiated()
    );
    session.wait()?;
    Ok(())
}
