//! The indices of each column's nodes and buffers in a batch, which follow from the types of all columns before it
//! (Arrow columnar format, "RecordBatch message").

use arrow_ipc::{Field, Schema, Type};

use super::schema::column;

/// The deepest nesting of types; a recording has three levels.
const DEEPEST: usize = 16;

/// An integer column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) node: usize,
    pub(super) buffer: usize,
    /// The size of a number in bytes.
    pub(super) width: usize,
}

/// The data of a text column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strings {
    pub(super) node: usize,
    pub(super) buffer: usize,
    /// The size of an offset in bytes.
    pub(super) width: usize,
}

/// A text column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Texts {
    /// Indices into the dictionary with this ID, whose offsets have `width` bytes.
    Dictionary {
        indices: Numbers,
        id: i64,
        width: usize,
    },
    Plain(Strings),
}

/// The column of accesses before the last one of an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Earlier {
    /// 4-byte offsets are in `buffer + 1`.
    pub(super) node: usize,
    pub(super) buffer: usize,
    pub(super) access: Strings,
    pub(super) handling: Numbers,
}

/// The columns that are read; others are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) time: Option<Numbers>,
    pub(super) vm: Option<Numbers>,
    pub(super) vcpu: Option<Numbers>,
    pub(super) thread: Option<Numbers>,
    pub(super) cpu: Option<Numbers>,
    pub(super) isa: Option<Texts>,
    pub(super) reason: Option<Texts>,
    pub(super) reason_code: Option<Numbers>,
    pub(super) guest_rip: Option<Numbers>,
    pub(super) access: Option<Texts>,
    pub(super) access_handling: Option<Numbers>,
    pub(super) handling: Option<Numbers>,
    pub(super) earlier: Option<Earlier>,
}

/// The number of nodes and buffers before a column.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    node: usize,
    buffer: usize,
}

impl Layout {
    /// The layout of a schema, or the reason why it cannot be read.
    pub(super) fn of(schema: &Schema<'_>) -> Result<Self, String> {
        let (mut layout, mut place) = (Self::default(), Place::default());
        for field in schema.fields().into_iter().flatten() {
            layout.column(&field, place)?;
            place = after(&field, place, 0)?;
        }
        for (name, missing) in
            [(column::TIME, layout.time.is_none()), (column::REASON, layout.reason.is_none())]
        {
            if missing {
                return Err(format!("it has no column `{name}`"));
            }
        }
        Ok(layout)
    }

    fn column(&mut self, field: &Field<'_>, place: Place) -> Result<(), String> {
        let name = field.name().unwrap_or_default();
        let number = || {
            numbers(field, place).map(Some).ok_or_else(|| format!("column `{name}` is not of whole numbers"))
        };
        let text =
            || texts(field, place).map(Some).ok_or_else(|| format!("column `{name}` is not of plain texts"));
        match name {
            column::TIME => self.time = number()?,
            column::VM => self.vm = number()?,
            column::VCPU => self.vcpu = number()?,
            column::THREAD => self.thread = number()?,
            column::CPU => self.cpu = number()?,
            column::ISA => self.isa = text()?,
            column::REASON => self.reason = text()?,
            column::REASON_CODE => self.reason_code = number()?,
            column::GUEST_RIP => self.guest_rip = number()?,
            column::ACCESS => self.access = text()?,
            column::ACCESS_HANDLING => self.access_handling = number()?,
            column::HANDLING => self.handling = number()?,
            column::EARLIER => {
                let found = earlier(field, place);
                self.earlier =
                    Some(found.ok_or_else(|| format!("column `{name}` is not a list of accesses"))?);
            }
            _ => {}
        }
        Ok(())
    }
}

fn numbers(field: &Field<'_>, place: Place) -> Option<Numbers> {
    if field.dictionary().is_some() {
        return None;
    }
    let width = width_in_bytes(field.type_as_int()?.bitWidth())?;
    Some(Numbers { node: place.node, buffer: place.buffer, width })
}

fn width_in_bytes(bits: i32) -> Option<usize> {
    match bits {
        8 => Some(1),
        16 => Some(2),
        32 => Some(4),
        64 => Some(8),
        _ => None,
    }
}

fn texts(field: &Field<'_>, place: Place) -> Option<Texts> {
    let strings = strings(field, place)?;
    let Some(dictionary) = field.dictionary() else { return Some(Texts::Plain(strings)) };
    // By default, indices are signed 32-bit numbers.
    let width = dictionary.indexType().map_or(Some(4), |int| width_in_bytes(int.bitWidth()))?;
    let indices = Numbers { node: place.node, buffer: place.buffer, width };
    Some(Texts::Dictionary { indices, id: dictionary.id(), width: strings.width })
}

fn strings(field: &Field<'_>, place: Place) -> Option<Strings> {
    let width = match field.type_type() {
        Type::Utf8 => 4,
        Type::LargeUtf8 => 8,
        _ => return None,
    };
    Some(Strings { node: place.node, buffer: place.buffer, width })
}

fn earlier(field: &Field<'_>, place: Place) -> Option<Earlier> {
    let children = field.children().filter(|_| field.type_type() == Type::List)?;
    let item = children.iter().next().filter(|item| item.type_type() == Type::Struct_)?;
    let mut members = item.children()?.iter();
    let (access, handling) = (members.next()?, members.next()?);
    // After the list's validity and offsets, and the struct's validity.
    let first = Place { node: place.node + 2, buffer: place.buffer + 3 };
    let second = after(&access, first, 0).ok()?;
    let plain = access.dictionary().is_none();
    Some(Earlier {
        node: place.node,
        buffer: place.buffer,
        access: strings(&access, first).filter(|_| plain)?,
        handling: numbers(&handling, second)?,
    })
}

/// The place after a column.
fn after(field: &Field<'_>, place: Place, depth: usize) -> Result<Place, String> {
    let name = field.name().unwrap_or_default();
    let unknown = || format!("column `{name}` is of a type that is not read; leave it out");
    if depth > DEEPEST {
        return Err(unknown());
    }
    let (buffers, has_children) = match field.type_type() {
        _ if field.dictionary().is_some() => (2, false),
        Type::Null => (0, false),
        Type::Int
        | Type::FloatingPoint
        | Type::Bool
        | Type::Decimal
        | Type::Date
        | Type::Time
        | Type::Timestamp
        | Type::Interval
        | Type::Duration
        | Type::FixedSizeBinary => (2, false),
        Type::Utf8 | Type::Binary | Type::LargeUtf8 | Type::LargeBinary => (3, false),
        Type::Struct_ | Type::FixedSizeList => (1, true),
        Type::List | Type::LargeList | Type::Map => (2, true),
        _ => return Err(unknown()),
    };
    let own = Place { node: place.node + 1, buffer: place.buffer + buffers };
    if !has_children {
        return Ok(own);
    }
    let mut children = field.children().into_iter().flatten();
    children.try_fold(own, |place, child| after(&child, place, depth + 1))
}
