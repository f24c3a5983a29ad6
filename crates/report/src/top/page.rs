//! The current page and its history.

use exits::{ExitReason, Key, What, Whose};

use super::accesses::Accesses;
use super::sort::Sort;

/// A page, by the subject of its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// All VMs.
    Vms,
    /// The reasons of a VM, or of a vCPU.
    Reasons(Whose),
    /// The vCPUs of a VM.
    Vcpus(Option<u32>),
    /// One reason of a VM or of a vCPU: its accesses, or the vCPUs with this reason if it has no accesses.
    Reason(Whose, ExitReason),
}

impl Page {
    /// The page's VM.
    pub(super) const fn vm(self) -> Option<Option<u32>> {
        match self {
            Self::Vms => None,
            Self::Vcpus(vm) => Some(vm),
            Self::Reasons(whose) | Self::Reason(whose, _) => Some(whose.vm()),
        }
    }

    /// The accesses that it shows; `None` for pages without accesses.
    pub(super) fn accesses(self) -> Option<Accesses> {
        match self {
            Self::Reason(_, reason) => Accesses::of(reason),
            Self::Vms | Self::Reasons(_) | Self::Vcpus(_) => None,
        }
    }

    /// The possible orders of its lines, the default first.
    pub(super) fn sorts(self) -> &'static [Sort] {
        match self {
            Self::Vms => Sort::OF_VMS,
            Self::Vcpus(_) => Sort::OF_VCPUS,
            Self::Reasons(_) | Self::Reason(..) => Sort::OF_KINDS,
        }
    }

    /// The page that opens from a line.
    fn behind(self, line: Key) -> Option<Self> {
        match (self, line.what) {
            (Self::Vms | Self::Vcpus(_), _) => Some(Self::Reasons(line.whose)),
            (Self::Reasons(whose), What::Reason(reason)) => Some(Self::Reason(whose, reason)),
            (Self::Reasons(_) | Self::Reason(..), _) => None,
        }
    }
}

/// A page with its cursor and order, as the user left it.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) page: Page,
    /// The selected line, which the cursor follows. `None` while the cursor stays at the top.
    pub(super) selected: Option<Key>,
    /// The last position of the selected line, for the case that it disappears.
    pub(super) position: usize,
    /// The index of the page's order.
    sort: usize,
    pub(super) is_reversed: bool,
}

impl View {
    pub(super) const fn new(page: Page) -> Self {
        Self { page, selected: None, position: 0, sort: 0, is_reversed: false }
    }

    /// The order of the lines.
    pub(super) fn sort(&self) -> Sort {
        self.page.sorts()[self.sort]
    }

    /// Switches to the next order.
    pub(super) fn next_sort(&mut self) {
        self.sort = (self.sort + 1) % self.page.sorts().len();
        self.is_reversed = false;
    }

    /// The position of the cursor among these lines.
    pub(super) fn cursor(&self, lines: &[Key]) -> usize {
        let found = self.selected.and_then(|key| lines.iter().position(|&line| line == key));
        found.unwrap_or(self.position).min(lines.len().saturating_sub(1))
    }

    /// Moves the cursor by this many lines, but not beyond the first or last one.
    pub(super) fn move_by(&mut self, lines: &[Key], by: isize) {
        self.position = self.cursor(lines).saturating_add_signed(by).min(lines.len().saturating_sub(1));
        self.selected = lines.get(self.position).copied().filter(|_| self.position > 0);
    }

    /// The page that opens from the line under the cursor.
    pub(super) fn opened(&self, lines: &[Key]) -> Option<Self> {
        let line = lines.get(self.cursor(lines))?;
        self.page.behind(*line).map(Self::new)
    }

    /// The other page of the same VM: by vCPU or by reason.
    pub(super) fn turned(&self, lines: &[Key]) -> Option<Self> {
        let page = match self.page {
            Page::Vms => Page::Vcpus(lines.get(self.cursor(lines))?.whose.vm()),
            Page::Reasons(Whose::Vm(vm)) => Page::Vcpus(vm),
            Page::Vcpus(vm) => Page::Reasons(Whose::Vm(vm)),
            Page::Reasons(_) | Page::Reason(..) => return None,
        };
        Some(Self::new(page))
    }
}
