//! libdigits.h in Rust: the functions that C declares, and a safe type around them.
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::{fmt, ptr};

extern "C" {
    fn digits_state_bytes() -> i64;
    fn digits_init(s: *mut c_void);
    fn digits_save_state(s: *const c_void, path: *const c_char) -> c_int;
    fn digits_load_state(s: *mut c_void, path: *const c_char) -> c_int;
    fn digits_step_arena(batch: i64) -> i64;
    fn digits_step(
        s: *mut c_void, x: *const f32, y: *const i64, loss: *mut f32, batch: i64,
        arena: *mut c_void,
    ) -> c_int;
    fn digits_predict(
        s: *const c_void, x: *const f32, digit: *mut i64, batch: i64, arena: *mut c_void,
    ) -> c_int;
    fn digits_strerror(code: c_int) -> *const c_char;
}

/// What the library says about a call that failed; its state is as it was before.
#[derive(Debug)]
pub struct Error(pub c_int);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // Safe: every code has a text, which lives as long as the program.
        let text = unsafe { CStr::from_ptr(digits_strerror(self.0)) };
        f.write_str(&text.to_string_lossy())
    }
}

impl std::error::Error for Error {}

fn check(code: c_int) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(Error(code)) }
}

fn c_path(path: &str) -> CString {
    CString::new(path).expect("a path without zero bytes")
}

pub const PIXELS: usize = 64;

/// The weights and what Adam remembers, and the arena in which steps work. Plain data.
#[derive(Clone)]
pub struct Digits {
    state: Vec<u64>, // of words, so that it is aligned
    arena: Vec<u64>,
}

fn words(bytes: i64) -> usize {
    usize::try_from(bytes).expect("a size that can be").div_ceil(8)
}

impl Digits {
    /// The network as it was at export.
    pub fn new() -> Self {
        let mut state = vec![0; words(unsafe { digits_state_bytes() })];
        unsafe { digits_init(state.as_mut_ptr().cast()) };
        Digits { state, arena: Vec::new() }
    }

    /// One step of training on rows of pixels and their labels; the loss before it.
    pub fn step(&mut self, x: &[f32], y: &[i64]) -> Result<f32, Error> {
        assert_eq!(x.len(), y.len() * PIXELS, "a row of pixels for every label");
        let batch = y.len() as i64;
        let need = words(unsafe { digits_step_arena(batch) });
        if self.arena.len() < need {
            self.arena.resize(need, 0);
        }
        let mut loss = 0.0;
        check(unsafe {
            digits_step(
                self.state.as_mut_ptr().cast(), x.as_ptr(), y.as_ptr(), &mut loss, batch,
                self.arena.as_mut_ptr().cast(),
            )
        })?;
        Ok(loss)
    }

    /// The digits that rows of pixels show. Threads may call it at the same time.
    pub fn predict(&self, x: &[f32]) -> Result<Vec<i64>, Error> {
        assert_eq!(x.len() % PIXELS, 0, "whole rows");
        let mut digits = vec![0; x.len() / PIXELS];
        check(unsafe {
            digits_predict(
                self.state.as_ptr().cast(), x.as_ptr(), digits.as_mut_ptr(), digits.len() as i64,
                ptr::null_mut(), // the call allocates, and frees
            )
        })?;
        Ok(digits)
    }

    pub fn save(&self, path: &str) -> Result<(), Error> {
        check(unsafe { digits_save_state(self.state.as_ptr().cast(), c_path(path).as_ptr()) })
    }

    pub fn load(&mut self, path: &str) -> Result<(), Error> {
        check(unsafe { digits_load_state(self.state.as_mut_ptr().cast(), c_path(path).as_ptr()) })
    }
}
