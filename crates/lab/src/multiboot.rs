//! Boots Xen from Bochs's ROM by the Multiboot protocol, with the control domain's kernel and initial RAM
//! disk as modules.
//!
//! Source: Multiboot Specification version 0.6.96, sections 3.2 (machine state) and 3.3 (boot information
//! format).

use std::path::Path;

use crate::elf::{PT_LOAD, entry_32, program_headers_32};
use crate::error::Error;
use crate::payload::{Contents, INFORMATION, INITIAL_RAM_DISK, laid_out, memory_map};

/// The value of EAX by which a kernel recognises a Multiboot loader.
const BOOTED: u32 = 0x2bad_b002;
/// The address of the control domain's kernel; Xen requires page-aligned modules.
const KERNEL: u64 = 32 << 20;

/// Bits of `flags`, each of which says that a field is valid.
const MEMORY: u32 = 1 << 0;
const COMMAND_LINE: u32 = 1 << 2;
const MODULES: u32 = 1 << 3;
const MEMORY_MAP: u32 = 1 << 6;

// Offsets from `INFORMATION`. A page is enough for a command line, because Linux's limit is 2 KiB.
const MODULES_AT: u64 = 0x80;
const MAP_AT: u64 = 0x100;
const XEN_ARGUMENTS_AT: u64 = 0x1000;
const KERNEL_ARGUMENTS_AT: u64 = 0x2000;

/// The images that Xen boots.
#[derive(Debug)]
pub(crate) struct Boot<'a> {
    /// The hypervisor, a 32-bit ELF file, and its path.
    pub(crate) hypervisor: (&'a Path, &'a [u8]),
    pub(crate) hypervisor_arguments: &'a str,
    /// The control domain's kernel, an ELF file that Xen loads itself.
    pub(crate) kernel: &'a [u8],
    pub(crate) kernel_arguments: &'a str,
    pub(crate) initial_ram_disk: &'a [u8],
}

/// The memory contents of a machine with `memory_mib` MiB.
///
/// # Errors
/// [`Error::Kernel`] if the hypervisor cannot be entered, or if it or the kernel overlaps what follows.
pub(crate) fn contents<'a>(memory_mib: u64, boot: &Boot<'a>) -> Result<Contents<'a>, Error> {
    let (path, elf) = boot.hypervisor;
    let problem = |problem: &str| Error::Kernel { path: path.to_owned(), problem: problem.to_owned() };
    let entry = entry_32(elf).ok_or_else(|| problem("it is not a 32-bit ELF file"))?;
    let mut parts = vec![(INFORMATION, information(memory_mib, boot).into())];
    for header in program_headers_32(elf).filter(|header| header.kind == PT_LOAD) {
        let bytes = header.contents(elf).ok_or_else(|| problem("a segment of it is cut off"))?;
        let size = u64::from(header.memory_size).max(bytes.len() as u64);
        if u64::from(header.physical_address) + size > INFORMATION {
            return Err(problem("it reaches beyond 15 MiB, where its boot information lies"));
        }
        // The rest of the segment is zero, as memory is at power-on.
        parts.push((u64::from(header.physical_address), bytes.into()));
    }
    if parts.len() == 1 {
        return Err(problem("it has no segment to load"));
    }
    if KERNEL + boot.kernel.len() as u64 > INITIAL_RAM_DISK {
        return Err(problem("its privileged domain's kernel is larger than 96 MiB"));
    }
    parts.push((KERNEL, boot.kernel.into()));
    parts.push((INITIAL_RAM_DISK, boot.initial_ram_disk.into()));
    Ok(Contents { parts, entry: u64::from(entry), mark: BOOTED })
}

/// The boot information and the data that it points to, for address [`INFORMATION`].
fn information(memory_mib: u64, boot: &Boot<'_>) -> Vec<u8> {
    const LARGEST: usize = 0xfff;
    let at = |offset: u64| (INFORMATION + offset) as u32;
    // Put the image's name before its arguments, as loaders other than GRUB 2 do; Xen recognises GRUB 2 by
    // its name.
    let named = |name: &str, arguments: &str| {
        let mut text = format!("{name} {arguments}").into_bytes();
        text.truncate(LARGEST);
        text.push(0);
        text
    };
    let map: Vec<u8> = memory_map(memory_mib)
        .iter()
        .flat_map(|&(address, size, kind)| {
            // The entry's size does not count the size field itself.
            let head = 20u32.to_le_bytes().into_iter().chain(address.to_le_bytes());
            head.chain(size.to_le_bytes()).chain(kind.to_le_bytes())
        })
        .collect();
    let module = |begin: u64, bytes: &[u8], text: u32| {
        words(&[begin as u32, begin as u32 + bytes.len() as u32, text, 0])
    };
    let modules = [
        module(KERNEL, boot.kernel, at(KERNEL_ARGUMENTS_AT)),
        // The command line is a page of zeros: neither name nor arguments.
        module(INITIAL_RAM_DISK, boot.initial_ram_disk, at(KERNEL_ARGUMENTS_AT + LARGEST as u64)),
    ]
    .concat();
    let lower_kib = 639;
    let upper_kib = (memory_mib << 10) as u32 - 1024 - 64;
    let fields = words(&[
        MEMORY | COMMAND_LINE | MODULES | MEMORY_MAP,
        lower_kib,
        upper_kib,
        0,
        at(XEN_ARGUMENTS_AT),
        2,
        at(MODULES_AT),
        // No symbols.
        0,
        0,
        0,
        0,
        map.len() as u32,
        at(MAP_AT),
    ]);
    let mut kernel_arguments = named("vmlinux", boot.kernel_arguments);
    kernel_arguments.resize(LARGEST + 1, 0);
    laid_out(&[
        (0, &fields),
        (MODULES_AT, &modules),
        (MAP_AT, &map),
        (XEN_ARGUMENTS_AT, &named("xen", boot.hypervisor_arguments)),
        (KERNEL_ARGUMENTS_AT, &kernel_arguments),
    ])
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 32-bit ELF file with one segment of `size` bytes at 2 MiB.
    fn hypervisor(memory_size: u32) -> Vec<u8> {
        let mut elf = vec![0; 0x80];
        elf[..5].copy_from_slice(b"\x7fELF\x01");
        elf[24..28].copy_from_slice(&0x20_0010u32.to_le_bytes());
        elf[28..32].copy_from_slice(&52u32.to_le_bytes());
        elf[42..44].copy_from_slice(&32u16.to_le_bytes());
        elf[44..46].copy_from_slice(&1u16.to_le_bytes());
        let header = words(&[PT_LOAD, 0x80, 0x20_0000, 0x20_0000, 5, memory_size, 7, 64]);
        elf[52..84].copy_from_slice(&header);
        elf.extend(b"hello");
        elf
    }

    fn boot(hypervisor: &[u8]) -> Boot<'_> {
        Boot {
            hypervisor: (Path::new("xen.elf"), hypervisor),
            hypervisor_arguments: "console=com1",
            kernel: b"kernel",
            kernel_arguments: "console=hvc0",
            initial_ram_disk: b"ram disk",
        }
    }

    fn word(bytes: &[u8], at: u64) -> u32 {
        let at = at as usize;
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn text(information: &[u8], address: u32) -> String {
        let from = (u64::from(address) - INFORMATION) as usize;
        let bytes = information[from..].iter().take_while(|&&byte| byte != 0).copied();
        String::from_utf8(bytes.collect()).unwrap()
    }

    #[test]
    fn segments_modules_and_arguments_are_where_the_information_says() {
        let elf = hypervisor(4 << 20);
        let contents = contents(1024, &boot(&elf)).unwrap();
        assert_eq!((contents.entry, contents.mark), (0x20_0010, 0x2bad_b002));
        let at = |address: u64| {
            let found = contents.parts.iter().find(|(start, _)| *start == address);
            found.map(|(_, bytes)| bytes.as_ref()).unwrap()
        };
        assert_eq!(at(0x20_0000), b"hello");
        let information = at(INFORMATION);
        assert_eq!(word(information, 0), 0x4d);
        assert_eq!(text(information, word(information, 16)), "xen console=com1");
        let modules = u64::from(word(information, 24)) - INFORMATION;
        let module = |index: u64| {
            let at_field = |field: u64| word(information, modules + index * 16 + field * 4);
            (u64::from(at_field(0)), at_field(1) - at_field(0), text(information, at_field(2)))
        };
        let (kernel, length, arguments) = module(0);
        assert_eq!((at(kernel), length, arguments.as_str()), (&b"kernel"[..], 6, "vmlinux console=hvc0"));
        let (ram_disk, length, arguments) = module(1);
        assert_eq!((at(ram_disk), length, arguments.as_str()), (&b"ram disk"[..], 8, ""));
    }

    #[test]
    fn the_memory_map_has_every_range_with_its_size_before_it() {
        let elf = hypervisor(5);
        let information = information(1024, &boot(&elf));
        assert_eq!(word(&information, 44), 5 * 24);
        let map = u64::from(word(&information, 48)) - INFORMATION;
        let last = map + 4 * 24;
        assert_eq!(word(&information, last), 20);
        assert_eq!(word(&information, last + 4), (1 << 30) - (64 << 10));
        assert_eq!((word(&information, last + 12), word(&information, last + 20)), (64 << 10, 3));
    }

    #[test]
    fn long_arguments_do_not_run_into_each_other() {
        let elf = hypervisor(5);
        let long = "x".repeat(5000);
        let boot = Boot { hypervisor_arguments: &long, kernel_arguments: &long, ..boot(&elf) };
        let information = information(1024, &boot);
        assert_eq!(text(&information, (INFORMATION + XEN_ARGUMENTS_AT) as u32).len(), 0xfff);
        assert_eq!(information.len() as u64, KERNEL_ARGUMENTS_AT + 0x1000);
    }

    #[test]
    fn what_cannot_be_entered_is_refused() {
        let refusal = |elf: &[u8]| contents(1024, &boot(elf)).unwrap_err().to_string();
        assert!(refusal(b"\x7fELF\x02").contains("not a 32-bit ELF file"));
        assert!(refusal(&hypervisor(14 << 20)).contains("beyond 15 MiB"));
        let whole = hypervisor(5);
        assert!(refusal(&whole[..whole.len() - 1]).contains("cut off"));
        let mut empty = hypervisor(5);
        empty[44] = 0;
        assert!(refusal(&empty).contains("no segment"));
    }
}
