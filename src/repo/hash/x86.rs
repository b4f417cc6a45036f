//! Two messages at once with the SHA instructions of x86 (FIPS 180-4; Intel SHA Extensions).

use std::arch::x86_64::*;

/// Whether the processor has the instructions used here.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("sha") && is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("sse4.1")
}

/// Hashes every message; see [`super::digests`].
///
/// # Panics
/// On a processor without the instructions: ask [`is_available`] first.
pub(super) fn digests<'a>(messages: impl Iterator<Item = &'a [u8]>, done: impl FnMut(usize, &[u8; 32])) {
    assert!(is_available(), "called on a processor without the instructions");
    // SAFETY: the processor has the instructions that the function is compiled for.
    #[expect(unsafe_code, reason = "the only way to call code that is compiled for more than the least processor")]
    unsafe {
        two_lanes(messages, done);
    }
}

type Chunk = [u8; 64];

#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn two_lanes<'a>(messages: impl Iterator<Item = &'a [u8]>, mut done: impl FnMut(usize, &[u8; 32])) {
    let mut messages = messages.enumerate();
    let mut lanes = [Lane::idle(), Lane::idle()];
    loop {
        for lane in &mut lanes {
            if lane.part().is_empty()
                && let Some((position, message)) = messages.next()
            {
                lane.load(position, message);
            }
        }
        let [left, right] = &mut lanes;
        match (left.part().len(), right.part().len()) {
            (0, 0) => return,
            (_, 0) => left.run(),
            (0, _) => right.run(),
            _ => run_both(left, right),
        }
        for lane in &mut lanes {
            if let Some(digest) = lane.finish() {
                done(lane.position, &digest);
            }
        }
    }
}

/// A message on its way: first its whole chunks, then the padded rest of one or two.
struct Lane<'a> {
    position: usize,
    state: State,
    whole: &'a [Chunk],
    tail: [Chunk; 2],
    /// How many chunks of the tail are behind, and how many there are; none in an idle lane.
    passed: usize,
    tail_len: usize,
}

impl<'a> Lane<'a> {
    #[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
    fn idle() -> Self {
        Self { position: 0, state: State::initial(), whole: &[], tail: [[0; 64]; 2], passed: 0, tail_len: 0 }
    }

    #[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
    fn load(&mut self, position: usize, message: &'a [u8]) {
        let (whole, rest) = message.as_chunks();
        (self.position, self.state, self.whole, self.passed) = (position, State::initial(), whole, 0);
        self.tail = [[0; 64]; 2];
        let tail = self.tail.as_flattened_mut();
        tail[..rest.len()].copy_from_slice(rest);
        // The padding: a one bit, zeros, and the length in bits in the last 8 bytes.
        tail[rest.len()] = 0x80;
        self.tail_len = if rest.len() < 56 { 1 } else { 2 };
        let bits = message.len() as u64 * 8;
        tail[self.tail_len * 64 - 8..self.tail_len * 64].copy_from_slice(&bits.to_be_bytes());
    }

    /// The chunks that come next, in one piece; empty in an idle lane.
    fn part(&self) -> &[Chunk] {
        if self.whole.is_empty() { &self.tail[self.passed..self.tail_len] } else { self.whole }
    }

    fn pass(&mut self, chunks: usize) {
        match self.whole.get(chunks..) {
            Some(rest) if !self.whole.is_empty() => self.whole = rest,
            _ => self.passed += chunks,
        }
    }

    #[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
    fn run(&mut self) {
        let mut state = [self.state];
        let part = self.part();
        part.iter().for_each(|chunk| compress(&mut state, [chunk]));
        let passed = part.len();
        [self.state] = state;
        self.pass(passed);
    }

    /// The hash, once, when the message is at its end; the lane is idle then.
    #[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
    fn finish(&mut self) -> Option<[u8; 32]> {
        let finished = self.tail_len > 0 && self.part().is_empty();
        finished.then(|| {
            (self.passed, self.tail_len) = (0, 0);
            self.state.digest()
        })
    }
}

/// Runs two lanes side by side for as long as both have chunks.
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
fn run_both(left: &mut Lane<'_>, right: &mut Lane<'_>) {
    let mut states = [left.state, right.state];
    let mut count = 0;
    for (left, right) in left.part().iter().zip(right.part()) {
        compress(&mut states, [left, right]);
        count += 1;
    }
    [left.state, right.state] = states;
    left.pass(count);
    right.pass(count);
}

/// The eight words of the state, in the order in which the instructions want them; `a` and `c` are the highest.
#[derive(Clone, Copy)]
struct State {
    abef: __m128i,
    cdgh: __m128i,
}

impl State {
    #[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
    fn initial() -> Self {
        Self {
            abef: words([0x9b05_688c, 0x510e_527f, 0xbb67_ae85, 0x6a09_e667]),
            cdgh: words([0x5be0_cd19, 0x1f83_d9ab, 0xa54f_f53a, 0x3c6e_f372]),
        }
    }

    #[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
    fn digest(self) -> [u8; 32] {
        let mut digest = [0; 32];
        let halves = [
            _mm_extract_epi64::<1>(self.abef),
            _mm_extract_epi64::<1>(self.cdgh),
            _mm_extract_epi64::<0>(self.abef),
            _mm_extract_epi64::<0>(self.cdgh),
        ];
        for (bytes, half) in digest.chunks_exact_mut(8).zip(halves) {
            bytes.copy_from_slice(&half.to_be_bytes());
        }
        digest
    }
}

/// Takes each lane one chunk further. The lanes do not depend on each other, so the processor works on all of them at the same time.
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
#[inline]
fn compress<const N: usize>(states: &mut [State; N], chunks: [&Chunk; N]) {
    let mut lanes = *states;
    let mut schedule = [[_mm_setzero_si128(); 4]; N];
    for lane in 0..N {
        schedule[lane] = message_words(chunks[lane]);
    }
    sixteen_rounds::<N, 0>(&mut lanes, &mut schedule);
    sixteen_rounds::<N, 4>(&mut lanes, &mut schedule);
    sixteen_rounds::<N, 8>(&mut lanes, &mut schedule);
    sixteen_rounds::<N, 12>(&mut lanes, &mut schedule);
    for lane in 0..N {
        states[lane].abef = _mm_add_epi32(states[lane].abef, lanes[lane].abef);
        states[lane].cdgh = _mm_add_epi32(states[lane].cdgh, lanes[lane].cdgh);
    }
}

#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
#[inline]
fn sixteen_rounds<const N: usize, const FROM: usize>(lanes: &mut [State; N], schedule: &mut [[__m128i; 4]; N]) {
    rounds::<N, FROM, 0>(lanes, schedule);
    rounds::<N, FROM, 1>(lanes, schedule);
    rounds::<N, FROM, 2>(lanes, schedule);
    rounds::<N, FROM, 3>(lanes, schedule);
}

/// Four rounds in every lane, those of `K[FROM + AT]`, with the words at `AT` of the schedule; after the first sixteen they are made of the words before.
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
#[inline]
fn rounds<const N: usize, const FROM: usize, const AT: usize>(lanes: &mut [State; N], schedule: &mut [[__m128i; 4]; N]) {
    let k = words(K[FROM + AT]);
    for lane in 0..N {
        let (state, w) = (&mut lanes[lane], &mut schedule[lane]);
        if FROM > 0 {
            let (next, third, fourth) = (w[(AT + 1) % 4], w[(AT + 2) % 4], w[(AT + 3) % 4]);
            let sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[AT], next), _mm_alignr_epi8::<4>(fourth, third));
            w[AT] = _mm_sha256msg2_epu32(sum, fourth);
        }
        let low = _mm_add_epi32(w[AT], k);
        state.cdgh = _mm_sha256rnds2_epu32(state.cdgh, state.abef, low);
        let high = _mm_shuffle_epi32::<0x0e>(low);
        state.abef = _mm_sha256rnds2_epu32(state.abef, state.cdgh, high);
    }
}

/// A chunk as sixteen big-endian words.
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
#[inline]
fn message_words(chunk: &Chunk) -> [__m128i; 4] {
    let (quarters, _) = chunk.as_chunks::<16>();
    [quarter(&quarters[0]), quarter(&quarters[1]), quarter(&quarters[2]), quarter(&quarters[3])]
}

#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
#[inline]
fn quarter(bytes: &[u8; 16]) -> __m128i {
    let both = u128::from_le_bytes(*bytes);
    let reverse = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    _mm_shuffle_epi8(_mm_set_epi64x((both >> 64) as i64, both as i64), reverse)
}

/// Four words, the first the lowest.
#[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
#[inline]
fn words(words: [u32; 4]) -> __m128i {
    let [a, b, c, d] = words;
    _mm_set_epi32(d.cast_signed(), c.cast_signed(), b.cast_signed(), a.cast_signed())
}

const K: [[u32; 4]; 16] = [
    [0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5],
    [0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5],
    [0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3],
    [0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174],
    [0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc],
    [0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da],
    [0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7],
    [0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967],
    [0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13],
    [0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85],
    [0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3],
    [0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070],
    [0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5],
    [0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3],
    [0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208],
    [0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2],
];
