//! The symbol tables in a tracepoint's `print fmt`.

/// The kernel's macro that uses a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolTable {
    /// `__print_symbolic`: one value, one name.
    Symbolic,
    /// `__print_flags`: one bit, one name.
    Flags,
}

/// One entry of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The macro that uses the table.
    pub table: SymbolTable,
    /// The expression that the table is applied to, as written (`REC->exit_reason & 0xffff`).
    pub of: &'a str,
    /// The value as written (`0x040 + 1`).
    pub expression: &'a str,
    /// The value, if the expression has only numbers: the values of the kernel's enumerators are not known here.
    pub value: Option<i64>,
    /// The name.
    pub name: &'a str,
}

/// Iterates over the entries of all tables in a `print fmt`.
#[derive(Debug, Clone)]
pub struct Symbols<'a> {
    rest: &'a str,
    table: Option<(SymbolTable, &'a str)>,
}

impl<'a> Symbols<'a> {
    pub(crate) fn new(print_fmt: &'a str) -> Self {
        Self { rest: print_fmt, table: None }
    }
}

const CALLS: [(&str, SymbolTable); 2] =
    [("__print_symbolic(", SymbolTable::Symbolic), ("__print_flags(", SymbolTable::Flags)];

impl<'a> Iterator for Symbols<'a> {
    type Item = Symbol<'a>;

    fn next(&mut self) -> Option<Symbol<'a>> {
        loop {
            let call = CALLS
                .iter()
                .filter_map(|&(call, table)| Some((self.rest.find(call)?, call.len(), table)))
                .min_by_key(|found| found.0);
            let entry = self.rest.find('{');
            match (call, entry) {
                (Some((at, length, table)), entry) if entry.is_none_or(|entry| at < entry) => {
                    let arguments = &self.rest[at + length..];
                    let of = arguments.split(',').next().unwrap_or_default().trim();
                    self.table = Some((table, of));
                    self.rest = arguments;
                }
                (_, Some(entry)) => {
                    let (expression, behind) = self.rest[entry + 1..].split_once(", \"")?;
                    let (name, behind) = behind.split_once('"')?;
                    self.rest = behind;
                    let Some((table, of)) = self.table else { continue };
                    let expression = expression.trim();
                    return Some(Symbol { table, of, expression, value: evaluate(expression), name });
                }
                (_, None) => return None,
            }
        }
    }
}

/// Evaluates sums, shifts and ORs of numbers, as macros leave them (`((((1UL))) << (3))`, `0x040 + 1`, `-1`).
fn evaluate(expression: &str) -> Option<i64> {
    if expression.contains('|') {
        return expression.split('|').try_fold(0, |sum, term| Some(sum | evaluate(term)?));
    }
    if let Some((left, right)) = expression.split_once("<<") {
        let shift = u32::try_from(evaluate(right)?).ok()?;
        return evaluate(left)?.checked_shl(shift);
    }
    expression.split('+').try_fold(0i64, |sum, term| sum.checked_add(number(term)?))
}

fn number(term: &str) -> Option<i64> {
    let bare = term.trim_matches(|c: char| c.is_whitespace() || c == '(' || c == ')');
    let bare = bare.trim_end_matches(['U', 'L', 'u', 'l']);
    let (negative, digits) = bare.strip_prefix('-').map_or((false, bare), |digits| (true, digits));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    if negative { value.checked_neg() } else { Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn expressions() {
        assert_eq!(evaluate("0x040 + 16"), Some(0x50));
        assert_eq!(evaluate("-1"), Some(-1));
        assert_eq!(evaluate("((((1UL))) << (3))"), Some(8));
        assert_eq!(evaluate("((((1UL))) << (APICV_INHIBIT_REASON_SEV))"), None);
        assert_eq!(evaluate("(1 << 0) | (1 << 3)"), Some(9));
        assert_eq!(evaluate("1 << 64"), None);
        assert_eq!(evaluate("0x80000013"), Some(0x8000_0013));
    }

    #[test]
    fn entries_know_their_table() {
        let text = r#""%s", __print_symbolic(REC->a & 0xff, { 0, "X" }, { 1, "Y Z" }), __print_flags(REC->b, "|", { 0x4, "F" })"#;
        let all: Vec<_> = Symbols::new(text).map(|s| (s.table, s.of, s.value, s.name)).collect();
        assert_eq!(
            all,
            [
                (SymbolTable::Symbolic, "REC->a & 0xff", Some(0), "X"),
                (SymbolTable::Symbolic, "REC->a & 0xff", Some(1), "Y Z"),
                (SymbolTable::Flags, "REC->b", Some(4), "F"),
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(__print_flags\\(|__print_symbolic\\(|[{}(),\" 0-9a-fx<+-]){0,40}") {
            let _ = Symbols::new(&text).count();
        }

        #[test]
        fn no_expression_panics(text in "[()0-9xUL<|+ -]{0,30}") {
            let _ = evaluate(&text);
        }
    }
}
