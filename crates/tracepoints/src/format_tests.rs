use super::*;
use exits::ExitReason;
use proptest::prelude::*;

const EXIT: &str = include_str!("../tests/fixtures/kvm_exit.format");
/// The number of KVM's events in Linux 6.12 with kvm_amd loaded.
const EVENTS: usize = 91;
const INHIBIT: &str = include_str!("../tests/fixtures/kvm_apicv_inhibit_changed.format");
const EMULATE: &str = include_str!("../tests/fixtures/kvm_emulate_insn.format");

#[test]
fn the_exit_event() {
    let format = EventFormat::parse(EXIT).unwrap();
    assert_eq!((format.name.as_str(), format.id, format.fields.len()), ("kvm_exit", 1635, 12));
    let reason = format.field("exit_reason").unwrap();
    assert_eq!((reason.offset, reason.size, reason.signed), (8, 4, false));
    assert_eq!(reason.kind, "unsigned int");
    assert!(format.field("common_pid").unwrap().signed);
    assert!(format.print_fmt.starts_with("\"vcpu %u reason"));
}

#[test]
fn the_kernels_names_are_ours() {
    let format = EventFormat::parse(EXIT).unwrap();
    let mut checked = 0;
    for symbol in format.symbols().filter(|symbol| symbol.table == crate::SymbolTable::Symbolic) {
        let code = symbol.value.unwrap() as u32;
        let vmx = symbol.of == "REC->exit_reason & 0xffff";
        let reason = if vmx { ExitReason::vmx(code) } else { ExitReason::svm(code) };
        assert_eq!(reason.name(), Some(symbol.name));
        checked += 1;
    }
    assert_eq!(checked, 170);
}

#[test]
fn flags_given_by_enumerator_have_no_value() {
    let format = EventFormat::parse(INHIBIT).unwrap();
    let names: Vec<_> = format.symbols().map(|symbol| (symbol.value, symbol.name)).collect();
    assert_eq!(names.len(), 12);
    assert_eq!(names[9], (None, "PIT_REINJ"));
}

#[test]
fn arrays_are_not_numbers() {
    let format = EventFormat::parse(EMULATE).unwrap();
    let bytes = format.field("insn").unwrap();
    assert!(bytes.array && !bytes.is_number());
    assert_eq!(bytes.read(&[0; 100]), None);
}

#[test]
fn located_fields() {
    let line = "field:__data_loc char[] name;\toffset:8;\tsize:4;\tsigned:0;";
    let field = field(line).unwrap();
    assert_eq!((field.name.as_str(), field.kind.as_str()), ("name", "__data_loc char"));
    assert!(field.located && field.array && !field.is_number());
}

#[test]
fn every_event_of_a_kernel() {
    let all = include_str!("../tests/fixtures/all-of-kvm.formats");
    let formats: Vec<_> = all
        .split("name: ")
        .skip(1)
        .map(|text| EventFormat::parse(&format!("name: {text}")).unwrap())
        .collect();
    assert_eq!(formats.len(), EVENTS);
    for format in &formats {
        assert!(format.fields.iter().any(|field| field.offset >= 8), "{} has own fields", format.name);
        assert!(!format.print_fmt.is_empty());
        let common = format.field("common_type").unwrap();
        assert_eq!((common.offset, common.size), (0, 2));
    }
    let located: Vec<_> =
        formats.iter().flat_map(|format| &format.fields).filter(|field| field.located).collect();
    assert_eq!(located.len(), 1);
}

#[test]
fn numbers_are_extended_by_their_sign() {
    let mut some = field("field:int a;\toffset:1;\tsize:4;\tsigned:1;").unwrap();
    let record = [0, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(some.read(&record), Some(u64::MAX));
    some.signed = false;
    assert_eq!(some.read(&record), Some(0xffff_ffff));
    assert_eq!(some.read(&record[..4]), None);
}

#[test]
fn what_is_wrong_is_said() {
    assert_eq!(EventFormat::parse("ID: 4"), Err(FormatError::NoLine("name:")));
    assert_eq!(EventFormat::parse("name: x\nID: many"), Err(FormatError::Id("many".to_owned())));
    assert!(matches!(EventFormat::parse("name: x\nID: 4\n\tfield:int a;"), Err(FormatError::Field(_))));
}

proptest! {
    #[test]
    fn no_text_panics(text in "(name: x\n)?(ID: 4\n)?(\tfield:[a-z\\[\\]* ]{0,12};\toffset:[0-9]{0,22};\tsize:[0-9]{1,3};\tsigned:[01];\n){0,3}") {
        if let Ok(format) = EventFormat::parse(&text) {
            for field in &format.fields {
                let _ = field.read(&[0; 64]);
            }
        }
    }

    #[test]
    fn a_cut_file_does_not_panic(length in 0..EXIT.len()) {
        if let Some(text) = EXIT.get(..length) {
            let _ = EventFormat::parse(text).map(|format| format.symbols().count());
        }
    }
}
