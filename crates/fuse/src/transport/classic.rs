//! Reader threads on /dev/fuse, one message buffer each.
//! Absent: cloned descriptors; measured, they change nothing here.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::device::{Buffer, Device, Received};
use super::{Core, Presence};
use crate::abi::{InHeader, Opcode, Plain};
use crate::reply::channel::{Channel, DeviceChannel};
use crate::request::Parts;

/// How long a reader beside rings leaves FORGETs to gather. The kernel hands over all that wait as one message, but wakes a
/// waiting reader for each; an INTERRUPT, the only other thing that comes this way then, waits no longer.
const GATHER: Duration = Duration::from_millis(1);

/// What the readers are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// All requests.
    Everything,
    /// What the kernel keeps on /dev/fuse when requests go to rings.
    BesideRings,
}

/// Starts `count` readers; `on_end` runs in each when the mount is gone.
pub(crate) fn start(
    core: &Arc<Core>,
    device: &Arc<Device>,
    (count, duty): (usize, Duty),
    on_end: &Arc<dyn Fn() + Send + Sync>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let spawn = |index: usize| {
        let (presence, device, on_end) = (core.enter(), Arc::clone(device), Arc::clone(on_end));
        std::thread::Builder::new().name(format!("fuse-read-{index}")).spawn(move || {
            read_until_unmounted(&presence, &device, duty);
            on_end();
        })
    };
    (0..count).map(spawn).collect()
}

fn read_until_unmounted(presence: &Presence, device: &Arc<Device>, duty: Duty) {
    let core = &presence.0;
    let mut buffer = Arc::new(device.buffer());
    loop {
        match device.receive(device.exclusive(&mut buffer)) {
            Ok(Received::Message(length)) => {
                dispatch(core, device, &buffer, length);
                if duty == Duty::BesideRings {
                    std::thread::sleep(GATHER);
                }
            }
            Ok(Received::Nothing) => {}
            Ok(Received::Ended) => return,
            Err(error) => return core.fail(error),
        }
    }
}

fn dispatch(core: &Core, device: &Arc<Device>, buffer: &Arc<Buffer>, length: usize) {
    let message = buffer.bytes().get(..length).unwrap_or_default();
    let Some(header) = InHeader::read(message) else { return };
    let channel = |data| Channel::Device(DeviceChannel::new(Arc::clone(device), data));
    match Parts::of_message(message, core.dialect) {
        Ok(parts) => {
            let data = write_data(&parts, length).map(|range| (Arc::clone(buffer), range));
            core.dispatch(parts, channel(data));
        }
        Err(error) => core.refuse(&header, error, channel(None)),
    }
}

/// Where a WRITE's data lie in its message.
fn write_data(parts: &Parts<'_>, length: usize) -> Option<Range<usize>> {
    (parts.opcode == Opcode::Write).then(|| length - parts.payload.len()..length)
}
