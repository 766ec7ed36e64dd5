//! `lossydisk FOLDER MOUNTPOINT`: mounts the lossy disk; standard input takes `cut SEED`; its end unmounts in order.
//!
//! Absent: options. A test starts it, orders the cut, and looks at FOLDER afterwards.

use anyhow::{Context, Result, bail};
use fuse::abi::InitFlags;
use fuse::{Config, Transport, Unmount, mount};
use lossydisk::LossyDisk;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;

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
        let Some(seed) = line.strip_prefix("cut ") else { bail!("unknown order {line:?}: `cut SEED`") };
        let cut = disk.cut(seed.trim().parse()?)?;
        println!("{cut:?}");
        // Requests under way wait for a lock that is never released; only the end of the process frees their callers.
        std::process::exit(0);
    }
    session.unmount(Unmount::Lazy)?;
    session.wait()?;
    Ok(())
}
