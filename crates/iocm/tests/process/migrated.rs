//! A real machine that migrates from one daemon to another. What the disk's daemon writes to its memory meanwhile must
//! migrate, too, and only the dirty log says that it was written.

use super::daemon::Daemon;
use super::machine::{Machine, boot_disk, machine, until};
use iocm::testing::Qmp;
use serde_json::{Value, json};
use std::os::unix::fs::FileExt as _;

/// The boot program: it reads blocks without looking at them, until it is told to write what is in its memory.
#[rustfmt::skip]
const BOOT: [u8; 173] = [
    // Segments 0, a stack below; at 0x500 the packet of the BIOS: 8 sectors at a time. The blocks begin at sector 64.
    0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0x66, 0xc7, 0x06, 0x00, 0x05, 0x10, 0x00, 0x08, 0x00, 0x66, 0xc7, 0x06, 0x0c, 0x05, 0x00, 0x00, 0x00, 0x00, 0x66, 0xbf, 0x40, 0x00, 0x00, 0x00,
    // Reads all blocks into memory, and prints P.
    0xb5, 0x42, 0xe8, 0x47, 0x00, 0xb0, 0x50, 0xe6, 0xe9,
    // Again, until the last one begins with 2. Then it prints S.
    0xb8, 0x00, 0x8f, 0x8e, 0xe0, 0x64, 0x66, 0x83, 0x3e, 0x00, 0x00, 0x02, 0x75, 0xe9, 0xb0, 0x53, 0xe6, 0xe9,
    // Reads sector 1 to 0x9000 until it begins with 3.
    0x66, 0xc7, 0x06, 0x04, 0x05, 0x00, 0x90, 0x00, 0x00, 0x66, 0xc7, 0x06, 0x08, 0x05, 0x01, 0x00, 0x00, 0x00, 0xb4, 0x42, 0xe8, 0x44, 0x00, 0x66, 0x83, 0x3e, 0x00, 0x90, 0x03, 0x75, 0xe1,
    // Writes all blocks from memory to sector 4096 and on, prints D, and halts.
    0x66, 0xbf, 0x00, 0x10, 0x00, 0x00, 0xb5, 0x43, 0xe8, 0x07, 0x00, 0xb0, 0x44, 0xe6, 0xe9, 0xf4, 0xeb, 0xfd,
    // All blocks: 128 of 4 KiB, from segment 0x1000 on.
    0x66, 0x31, 0xed, 0x66, 0x89, 0xe8, 0x66, 0xc1, 0xe0, 0x18, 0x66, 0x05, 0x00, 0x00, 0x00, 0x10, 0x66, 0xa3, 0x04, 0x05, 0x67, 0x66, 0x8d, 0x04, 0xef, 0x66, 0xa3, 0x08, 0x05, 0x88, 0xec, 0xe8, 0x08, 0x00, 0x45, 0x81, 0xfd, 0x80, 0x00, 0x75, 0xda, 0xc3,
    // The call of the BIOS, with the carry flag for errors; for these it prints E, and halts.
    0x30, 0xc0, 0xbe, 0x00, 0x05, 0x66, 0x60, 0xcd, 0x13, 0x66, 0x61, 0x72, 0x01, 0xc3, 0xb0, 0x45, 0xe6, 0xe9, 0xeb, 0xbf,
];

const BLOCKS: u32 = 128;
const BLOCK: usize = 4096;

/// The content of a block, whose first word is the generation.
fn block(number: u32, generation: u32) -> Vec<u8> {
    let words = (0..BLOCK as u32 / 4)
        .map(|word| if word == 0 { generation } else { number ^ word ^ generation << 20 });
    words.flat_map(u32::to_le_bytes).collect()
}

fn at(sector: u64, number: u32) -> u64 {
    sector * 512 + u64::from(number) * BLOCK as u64
}

fn migration(source: &mut Qmp) -> Value {
    source.ask("query-migrate", json!({}))
}

pub(crate) fn takes_its_memory_along() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let disk = boot_disk(&path, &BOOT);
    let write = |numbers: std::ops::Range<u32>, generation| {
        numbers.for_each(|number| disk.write_all_at(&block(number, generation), at(64, number)).unwrap());
    };
    write(0..BLOCKS, 1);
    let mut daemons = Vec::new();
    for side in ["from", "to"] {
        let socket = directory.path().join(format!("{side}.sock"));
        let config = format!(
            "[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {socket:?}\npath = {path:?}\n\
             [control]\nsocket = \"\"\nmount = \"\"\n"
        );
        daemons.push(Daemon::start(&config));
        until("the daemon begins", || socket.exists());
    }
    let start = |side: &str| {
        let mut command = machine(directory.path(), side);
        command.arg("-qmp").arg(format!("unix:{side}.qmp,server=on,wait=off"));
        command
    };
    let Ok(from) = start("from").spawn().map(Machine) else {
        println!("not tested: no qemu-system-x86_64 here");
        return;
    };
    let to = start("to").args(["-incoming", "unix:migration"]).spawn().map(Machine).unwrap();
    let told = |side: &str| std::fs::read(directory.path().join(format!("{side}.told"))).unwrap_or_default();
    let passes = || told("from").iter().filter(|letter| **letter == b'P').count();
    until("the machine reads", || passes() >= 2);
    let mut source = Qmp::connect(&directory.path().join("from.qmp"));
    let mut target = Qmp::connect(&directory.path().join("to.qmp"));
    // Slow enough that it cannot end while the daemon still writes to the machine's memory.
    source.ask("migrate-set-parameters", json!({ "max-bandwidth": 1 << 20, "downtime-limit": 1 }));
    source.ask("migrate", json!({ "uri": "unix:migration" }));
    until("all memory was sent once", || {
        migration(&mut source)["ram"]["dirty-sync-count"].as_u64().is_some_and(|count| count >= 2)
    });
    // The last block ends the reading: change it only when all others were read again.
    write(0..BLOCKS - 1, 2);
    let seen = passes();
    until("all blocks were read again", || passes() >= seen + 2);
    write(BLOCKS - 1..BLOCKS, 2);
    until("the machine knows the last block", || told("from").ends_with(b"S"));
    assert_eq!(
        migration(&mut source)["status"],
        "active",
        "nobody said that memory was written: {}",
        migration(&mut source)
    );
    source.ask("migrate-set-parameters", json!({ "max-bandwidth": 1_u64 << 32, "downtime-limit": 2000 }));
    until("the migration ends", || migration(&mut source)["status"] == "completed");
    let migration = migration(&mut source);
    drop(from);
    daemons.remove(0);
    until("the machine runs where it went", || target.ask("query-status", json!({}))["running"] == true);
    disk.write_all_at(&3_u32.to_le_bytes(), 512).unwrap();
    until("the machine goes on", || told("to") == b"D");
    drop(to);
    let read = |sector, number| {
        let mut bytes = vec![0; BLOCK];
        disk.read_exact_at(&mut bytes, at(sector, number)).unwrap();
        bytes
    };
    let stale: Vec<u32> = (0..BLOCKS).filter(|number| read(4096, *number) != block(*number, 2)).collect();
    assert!(stale.is_empty(), "blocks that did not go along: {stale:?}");
    println!(
        "a machine migrated with {BLOCKS} blocks that its disk's daemon read meanwhile: {} dirty pages a second, \
         {} rounds, {} ms of downtime",
        migration["ram"]["dirty-pages-rate"], migration["ram"]["dirty-sync-count"], migration["downtime"]
    );
}
