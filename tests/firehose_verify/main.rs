//! Which commits are believed: those of the reference implementation, and no damaged one.
#![cfg(feature = "sim")]

#[path = "../common/mod.rs"]
mod common;
mod damage;
mod event;
mod rules;
mod whole;
