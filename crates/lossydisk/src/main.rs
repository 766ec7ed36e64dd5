//! `lossydisk FOLDER MOUNTPOINT`: mounts the lossy disk; standard input takes `cut SEED` or `cut-before-name SEED`; its end
//! unmounts in order.
//!
//! Absent: options. A test starts it, orders the cut, and looks at FOLDER afterwards.

use anyhow::{Context, Result, bail};
use fuse::abi::InitFlags;
use fuse::{Config, Transport, Unmount, mount};
use lossydisk::LossyDisk;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a cut waits for a new file to be synced.
const NEW_FILE_WAIT: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [folder, mountpoint] = words.as_slice() else { bail!("usage: lossydisk FOLDER MOUNTPOINT") };
    let attic = folder.with_extension("attic");
    std::fs::create_dir_all(&attic).with_context(|| attic.display().to_string())?;
    let disk = Arc::new(LossyDisk::new(folder.canonicalize()?, attic.canonicalize()?));
    let config = Config {
        transport: Transport::Classic,
        wanted: InitFlags::BIG_WRITES | InitFlags::ASYNC_READ | InitFlags::AUTO_INVAL_DATA,
        ..Config::default()
    };
    let session = mount(mountpoint, &config, Arc::clone(&disk))?;
    println!("mounted");
    if let Some(line) = std::io::stdin().lock().lines().next() {
        let line = line?;
        let cut = match line.split_once(' ') {
            Some(("cut", seed)) => disk.cut(seed.trim().parse()?)?,
            Some(("cut-before-name", seed)) => {
                let seed = seed.trim().parse()?;
                match disk.cut_before_name(seed).recv_timeout(NEW_FILE_WAIT) {
                    Ok(cut) => cut?,
                    // None came: any moment will do.
                    Err(_) => disk.cut(seed)?,
                }
            }
            _ => bail!("unknown order {line:?}: `cut SEED` or `cut-before-name SEED`"),
        };
        println!("{cut:?}");
        // Requests under way wait for a lock that is never released; only the end of the process frees their callers.
        std::process::exit(0);
    }
    session.unmount(Unmount::Lazy)?;
    session.wait()?;
    Ok(())
}
