//! The one INIT exchange that opens a connection.
//! Absent: protocols before 7.36 and a second INIT; kernels with io_uring or the extensions
//! PandoFS wants are far newer.

use std::io;

use crate::abi::{self, Dialect, InHeader, InitFlags, InitIn, InitOut, Opcode, Plain};
use crate::error::MountError;
use crate::kernel_mount::Config;
use crate::transport::device::{Buffer, Device, Received};

/// First minor version with everything this crate relies on (two words of flags).
const MINOR_MIN: u32 = 36;
/// The smallest payload worth having: an extended attribute may be 64 KiB.
const PAYLOAD_MIN: usize = 128 << 10;
const PAGE: usize = 4096;

/// What the kernel and its mount agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor version of the protocol the kernel speaks.
    pub minor: u32,
    /// What the kernel offered.
    pub offered: InitFlags,
    /// What was wanted and offered; OVER_IO_URING means that rings are tried.
    pub flags: InitFlags,
    pub max_write: u32,
    pub max_pages: u16,
    pub max_readahead: u32,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub time_gran: u32,
}

impl Negotiated {
    pub(crate) fn dialect(&self) -> Dialect {
        Dialect { setxattr_ext: self.flags.contains(InitFlags::SETXATTR_EXT) }
    }
}

/// The most bytes one request or reply carries under this configuration.
pub(crate) fn payload_bytes(config: &Config) -> usize {
    let pages = usize::from(config.max_pages) * PAGE;
    PAYLOAD_MIN.max(abi::PAYLOAD_MIN).max(config.max_write as usize).max(pages)
}

/// Reads the kernel's INIT. Nothing else can come before it.
pub(crate) fn receive(device: &Device, config: &Config) -> Result<(Negotiated, u64), MountError> {
    let mut buffer = Buffer::new(payload_bytes(config) + PAGE);
    let length = loop {
        match device.receive(&mut buffer).map_err(|source| MountError::system("read INIT", source))? {
            Received::Message(length) => break length,
            Received::Nothing => {}
            Received::Ended => {
                let source = io::Error::from_raw_os_error(libc::ENODEV);
                return Err(MountError::system("read INIT", source));
            }
        }
    };
    let message = buffer.bytes().get(..length).unwrap_or_default();
    let garbled = || MountError::system("read INIT", io::Error::from(io::ErrorKind::InvalidData));
    let header = InHeader::read(message).ok_or_else(garbled)?;
    let input = message.get(size_of::<InHeader>()..).and_then(InitIn::read).ok_or_else(garbled)?;
    if header.opcode != Opcode::Init as u32 {
        return Err(garbled());
    }
    if input.major != abi::MAJOR || input.minor < MINOR_MIN {
        device.answer(header.unique, libc::EPROTO, &[]);
        return Err(MountError::Protocol { major: input.major, minor: input.minor });
    }
    Ok((agree(config, &input), header.unique))
}

fn agree(config: &Config, input: &InitIn) -> Negotiated {
    let offered = InitFlags(u64::from(input.flags) | u64::from(input.flags2) << 32);
    // Without these two the limits below and the second word of flags would not be read.
    let wanted = config.wanted | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
    Negotiated {
        minor: input.minor.min(abi::MINOR),
        offered,
        flags: wanted & offered,
        max_write: config.max_write.max(PAGE as u32),
        max_pages: config.max_pages.max(1),
        max_readahead: config.max_readahead.min(input.max_readahead),
        max_background: config.max_background,
        congestion_threshold: config.congestion_threshold,
        time_gran: config.time_gran,
    }
}

/// Answers INIT; from here on the kernel sends requests.
pub(crate) fn answer(device: &Device, unique: u64, negotiated: &Negotiated) {
    let out = InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: negotiated.max_readahead,
        flags: (negotiated.flags.0 & u64::from(u32::MAX)) as u32,
        flags2: (negotiated.flags.0 >> 32) as u32,
        max_background: negotiated.max_background,
        congestion_threshold: negotiated.congestion_threshold,
        max_write: negotiated.max_write,
        time_gran: negotiated.time_gran,
        max_pages: negotiated.max_pages,
        ..InitOut::default()
    };
    device.answer(unique, 0, out.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_offered_features_are_taken() {
        let config =
            Config { wanted: InitFlags::POSIX_LOCKS | InitFlags::OVER_IO_URING, ..Config::default() };
        let offered =
            InitFlags::OVER_IO_URING | InitFlags::INIT_EXT | InitFlags::MAX_PAGES | InitFlags::POSIX_ACL;
        let input = InitIn {
            major: 7,
            minor: 99,
            max_readahead: 4096,
            flags: (offered.0 & 0xffff_ffff) as u32,
            flags2: (offered.0 >> 32) as u32,
            unused: [0; 11],
        };
        let agreed = agree(&config, &input);
        assert_eq!(agreed.flags, InitFlags::OVER_IO_URING | InitFlags::INIT_EXT | InitFlags::MAX_PAGES);
        assert_eq!((agreed.minor, agreed.max_readahead, agreed.offered), (abi::MINOR, 4096, offered));
    }
}
