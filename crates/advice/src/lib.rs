//! The device models that cause a VM's exits, their cost, and the changes that avoid them.
//!
//! The knowledge about devices is data: the files of `src/table`, with one entry per device. [`advise`] applies them to a
//! profile. The VM's definition ([`Facts`]) decides between devices that share addresses, and the definition and the exits
//! show which cures the VM already has. [`audit`] judges a VM that should be idle.

mod action;
mod advise;
mod facts;
mod hot;
mod idle;
mod seen;
mod table;

pub use action::Action;
pub use advise::{Advice, Cured, DeviceExits, Of, Others, VmAdvice, advise, advise_beside};
pub use facts::{Fact, Facts};
pub use hot::{Hot, hot};
pub use idle::{Audit, Source, audit};
pub use seen::Match;
pub use table::{Cure, Device, Effect, OnXen, Suspect, Table, TableError};
