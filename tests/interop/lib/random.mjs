// Seeded randomness (mulberry32), so that one seed makes the same writes again.

export class Random {
  #state

  constructor(seed) {
    this.#state = seed >>> 0
  }

  /** A number in [0, 1). */
  next() {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let t = this.#state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }

  /** An integer in [0, end). */
  below(end) {
    return Math.floor(this.next() * end)
  }

  pick(list) {
    return list[this.below(list.length)]
  }
}
