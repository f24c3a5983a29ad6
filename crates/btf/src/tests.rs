use super::*;
use proptest::prelude::*;

/// Builds a BTF file.
#[derive(Default)]
struct Maker {
    types: Vec<u8>,
    strings: Vec<u8>,
    first_string: u32,
}

impl Maker {
    fn new(first_string: u32) -> Self {
        // The kernel's string table begins with the empty string.
        let strings = if first_string == 0 { vec![0] } else { Vec::new() };
        Self { types: Vec::new(), strings, first_string }
    }

    fn text(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.first_string + self.strings.len() as u32;
        self.strings.extend(text.bytes().chain([0]));
        at
    }

    fn add(&mut self, name: &str, kind: u32, size_or_type: u32, items: &[&[u32]]) {
        let name = self.text(name);
        let info = kind << 24 | items.len() as u32;
        let words = [name, info, size_or_type];
        let all = words.iter().chain(items.iter().copied().flatten());
        self.types.extend(all.flat_map(|word| word.to_le_bytes()));
    }

    fn bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let header = [HEADER as u32, 0, types, types, strings];
        bytes.extend(header.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend_from_slice(&self.types);
        bytes.extend_from_slice(&self.strings);
        bytes
    }

    fn file(&self) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), self.bytes()).unwrap();
        file
    }
}

fn kernel() -> Maker {
    let mut kernel = Maker::new(0);
    let (head, inner) = (kernel.text("head"), kernel.text("inner"));
    // 1: struct base { 8 bytes; int inner at offset 8 }
    kernel.add("base", kind::STRUCT, 16, &[&[head, 0, 0], &[inner, 0, 64]]);
    kernel
}

#[test]
fn members_of_a_module_are_found_through_the_kernels_types() {
    let kernel = kernel();
    let mut module = Maker::new(kernel.strings.len() as u32);
    let (vcpu, reason) = (module.text("vcpu"), module.text("reason"));
    // 2: const base; 3: anonymous union { base head; int reason }
    module.add("", kind::CONST, 1, &[]);
    module.add("", kind::UNION, 16, &[&[vcpu, 2, 0], &[reason, 0, 32]]);
    module.add("vcpu_vmx", kind::STRUCT, 48, &[&[0, 3, 256]]);
    // 5: struct vcpu_vmx *; 6: int (*)(void *, struct vcpu_vmx *); then the typedef of 6.
    module.add("", kind::POINTER, 4, &[]);
    module.add("", kind::FUNCTION_PROTOTYPE, 0, &[&[0, 0], &[0, 5]]);
    module.add("", kind::POINTER, 6, &[]);
    module.add("btf_trace_exit", kind::TYPEDEF, 7, &[]);
    let (kernel, module) = (kernel.file(), module.file());
    let base = Btf::from_file(kernel.path()).unwrap();
    let btf = Btf::from_split_file(module.path(), &base).unwrap();
    assert_eq!(btf.member("base", &["inner"]), Some(8));
    assert_eq!(btf.member("vcpu_vmx", &["reason"]), Some(36));
    assert_eq!(btf.member("vcpu_vmx", &["vcpu", "inner"]), Some(40));
    assert_eq!(btf.member("vcpu_vmx", &["inner"]), None);
    assert_eq!(base.member("vcpu_vmx", &["reason"]), None);
    assert_eq!(btf.parameter("btf_trace_exit", "vcpu_vmx"), Some(1));
    assert_eq!(btf.parameter("btf_trace_exit", "base"), None);
}

#[test]
fn structures_that_hold_themselves_many_times_end() {
    let mut kernel = Maker::new(0);
    let wanted = kernel.text("wanted");
    // 1: a structure with a hundred anonymous members, each of which is the structure itself.
    kernel.add("ring", kind::STRUCT, 0, &[&[0, 1, 0][..]; 100]);
    // 2 to 31: each is contained twice in the one before it; the last has the member that is looked for.
    for number in 2..32 {
        let name = if number == 2 { "deep" } else { "" };
        kernel.add(name, kind::STRUCT, 0, &[&[0, 1, 0], &[0, number + 1, 8], &[0, number + 1, 16]]);
    }
    kernel.add("", kind::STRUCT, 8, &[&[wanted, 0, 0]]);
    let btf = Btf::parse(kernel.bytes()).unwrap();
    assert_eq!(btf.member("ring", &["wanted"]), None);
    assert_eq!(btf.member("deep", &["wanted"]), Some(30));
    assert_eq!(btf.member("deep", &["absent"]), None);
}

#[test]
fn what_is_no_type_information_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Btf::from_file(file.path()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(Btf::from_file(Path::new("/does/not/exist")).is_err());
}

#[test]
fn the_running_kernels_own_is_read() {
    let path = Path::new("/sys/kernel/btf/vmlinux");
    if !path.exists() {
        eprintln!("not tested: this kernel has no {}", path.display());
        return;
    }
    let btf = Btf::from_file(path).unwrap();
    let (process, thread) = (btf.member("task_struct", &["tgid"]), btf.member("task_struct", &["pid"]));
    // `pid` and `tgid` have been neighbours since both exist.
    assert_eq!(process, thread.map(|at| at + 4));
    assert_eq!(btf.member("list_head", &["prev"]), Some(8));
}

proptest! {
    #[test]
    fn no_bytes_panic(at in 0usize..200, value: u8, cut in 0usize..200) {
        let mut bytes = kernel().bytes();
        let at = at % bytes.len();
        bytes[at] = value;
        bytes.truncate(bytes.len() - cut.min(bytes.len()) / 4);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &bytes).unwrap();
        if let Ok(btf) = Btf::from_file(file.path()) {
            let _ = (btf.member("base", &["inner"]), btf.parameter("base", "base"));
        }
    }
}

#[test]
fn an_enumeration_has_its_values_by_name() {
    let mut maker = Maker::new(0);
    let names = ["FIRST", "SECOND", "FAR", "LONG"].map(|name| maker.text(name));
    maker.add("small", kind::ENUM, 4, &[&[names[0], 0], &[names[1], 7]]);
    maker.add("wide", kind::ENUM64, 8, &[&[names[2], 5, 1]]);
    let long = maker.text(&"x".repeat(600));
    maker.add("odd", kind::ENUM, 4, &[&[names[3], 1], &[long, 2], &[u32::MAX, 3]]);
    let types = Btf::parse(maker.bytes()).unwrap();
    assert_eq!(types.values("small"), Some(vec![("FIRST", 0), ("SECOND", 7)]));
    assert_eq!(types.values("wide"), Some(vec![("FAR", 5)]));
    assert_eq!(types.values("odd"), Some(vec![("LONG", 1)]));
    assert_eq!((types.values("none"), types.has_value("small", "SECOND")), (None, Some(true)));
}
