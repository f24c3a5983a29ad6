//! Type information of a kernel, and of a module that goes on where the kernel's ends: of types that have to do with each
//! other, with some bytes changed, and of any bytes.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

/// What is looked for, and what is not.
const NAMES: [&str; 16] = [
    "",
    "task_struct",
    "tgid",
    "file",
    "private_data",
    "kvm_vcpu",
    "arch",
    "apic",
    "apicv_active",
    "kvm",
    "apicv_inhibit_reasons",
    "btf_trace_kvm_exit",
    "list_head",
    "next",
    "kvm_vcpu_arch",
    "kvm_arch",
];

#[derive(Debug, Arbitrary)]
enum Input<'b> {
    Made(File, File),
    Any(&'b [u8], &'b [u8]),
}

#[derive(Debug, Arbitrary)]
struct File {
    types: Vec<Type>,
    header: u8,
    changes: Vec<(u16, u8)>,
    cut: u8,
}

#[derive(Debug, Arbitrary)]
struct Type {
    kind: u8,
    flag: bool,
    name: u8,
    size_or_type: u8,
    /// Members, parameters, values: a name, a type and an offset.
    items: Vec<(u8, u8, u16)>,
    /// How many more or fewer of them the type says to have.
    lies: i8,
}

impl File {
    /// The file; `first_string` bytes of names come before its own, which a module takes from its kernel.
    fn bytes(&self, first_string: u32) -> Vec<u8> {
        let mut strings = Vec::new();
        let places = NAMES.map(|name| {
            let at = first_string + strings.len() as u32;
            strings.extend(name.bytes().chain([0]));
            at
        });
        let place = |name: u8| places[usize::from(name) % NAMES.len()];
        let mut types = Vec::new();
        for one in self.types.iter().take(200) {
            let kind = u32::from(one.kind) % 20;
            // How many words each kind has behind its first three, for each item and altogether.
            let (each, once) = match kind {
                1 | 14 | 17 => (0, 1),
                3 => (0, 3),
                4 | 5 | 15 | 19 => (3, 0),
                6 | 13 => (2, 0),
                _ => (0, 0),
            };
            let items: Vec<_> = if each > 0 { one.items.iter().take(40).collect() } else { Vec::new() };
            let count = (items.len() as i64 + i64::from(one.lies / 64)).max(0) as u32;
            let info = kind << 24 | u32::from(one.flag) << 31 | count;
            let mut words = vec![place(one.name), info, u32::from(one.size_or_type)];
            for (name, number, offset) in items {
                words.extend(&[place(*name), u32::from(*number), u32::from(*offset)][..each]);
            }
            words.extend(&[1, 2, 3][..once]);
            types.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        let padding = u32::from(self.header >> 4);
        let header = [24 + padding, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        bytes.extend(header.iter().flat_map(|word| word.to_le_bytes()));
        bytes.resize(24 + padding as usize, 0);
        bytes.extend(types);
        bytes.extend(strings);
        for (at, value) in self.changes.iter().take(8) {
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *value;
        }
        bytes.truncate(bytes.len() - usize::from(self.cut / 8).min(bytes.len()));
        bytes
    }
}

fuzz_target!(|input: Input<'_>| {
    match input {
        Input::Made(kernel, module) => {
            let names: usize = NAMES.iter().map(|name| name.len() + 1).sum();
            btf::read_type_information(&kernel.bytes(0), &module.bytes(names as u32));
        }
        Input::Any(kernel, module) => {
            btf::read_type_information(kernel, module);
            btf::read_type_information(kernel, kernel);
        }
    }
});
