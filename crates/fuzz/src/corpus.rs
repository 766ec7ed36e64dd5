//! The kept inputs, `corpus/<target>/<name>`, and where failing ones are put, `failures/<target>-<hash>`.
//!
//! Absent: compression, minimisation.

use crate::Target;
use std::fs;
use std::io;
use std::path::PathBuf;
use stdx::checksum::crc32c_parts;
use stdx::hash::mix64;

/// The longest input that is kept.
pub const KEPT_BYTES_MAX: usize = 2048;
/// All kept inputs together.
pub const CORPUS_BYTES_MAX: u64 = 300 << 10;
/// Inputs kept of one target, so that one target cannot fill the corpus.
pub const KEPT_MAX: usize = 96;

/// The crate's folder, as cargo says it now: clones that share a target folder share what was compiled for the first.
fn manifest_dir() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// The folder of a target's inputs.
#[must_use]
pub fn folder(target: &Target) -> PathBuf {
    manifest_dir().join("corpus").join(target.name)
}

/// A target's inputs in the order of their names.
///
/// # Errors
/// `io::Error`; a target without a folder has no inputs.
pub fn load(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let entries = match fs::read_dir(folder(target)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut inputs = Vec::new();
    for entry in entries {
        let entry = entry?;
        inputs.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
    }
    inputs.sort();
    Ok(inputs)
}

/// Keeps an input under a name.
///
/// # Errors
/// `io::Error`.
pub fn keep(target: &Target, name: &str, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder(target))?;
    fs::write(folder(target).join(name), bytes)
}

/// Writes a failing input and returns where.
///
/// # Errors
/// `io::Error`.
pub fn fail(target: &Target, bytes: &[u8]) -> io::Result<PathBuf> {
    let folder = manifest_dir().join("failures");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}-{}", target.name, name_of(bytes)));
    fs::write(&path, bytes)?;
    Ok(path)
}

/// A name made from the bytes.
#[must_use]
pub fn name_of(bytes: &[u8]) -> String {
    let (a, b) = (crc32c_parts(&[bytes]), crc32c_parts(&[b"again", bytes]));
    format!("{:016x}", mix64(u64::from(a) << 32 | u64::from(b)))
}

/// Bytes of all kept inputs of these targets.
///
/// # Errors
/// `io::Error`.
pub fn total(targets: &[Target]) -> io::Result<u64> {
    let mut sum = 0;
    for target in targets {
        sum += load(target)?.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
    }
    Ok(sum)
}

/// Hexadecimal digits of bytes.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
