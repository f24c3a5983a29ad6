//! Checks what README and the book in `docs/` say, as far as a program can.

mod blocks;
mod documents;
mod iocm;
mod links;
mod pages;
mod reference;
mod words;
