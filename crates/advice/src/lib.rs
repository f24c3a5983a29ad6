//! Which device model causes a VM's exits, what that costs, and what avoids them.
//!
//! What is known of devices is data: the files of `src/table`, one entry a device. [`advise`] applies them to a profile;
//! what the VM's definition says ([`Facts`]) decides between devices that share addresses, and it and the exits themselves
//! strike cures that the VM has already. [`audit`] judges a VM that should be at rest.

mod action;
mod advise;
mod facts;
mod hot;
mod idle;
mod seen;
mod table;

pub use action::Action;
pub use advise::{Advice, Cured, DeviceExits, Of, VmAdvice, advise};
pub use facts::{Fact, Facts};
pub use hot::{Hot, hot};
pub use idle::{Audit, Source, audit};
pub use seen::Match;
pub use table::{Cure, Device, Effect, OnXen, Suspect, Table, TableError};
