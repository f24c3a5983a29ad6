//! README and the book in `docs/`: what they say is checked as far as a program can.

mod blocks;
mod links;
mod pages;
mod reference;
mod words;
