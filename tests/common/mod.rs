//! What several test programs need.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(unreachable_pub, reason = "a module of a test program has no outside")]

pub mod vectors;
