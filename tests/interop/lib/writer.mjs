// Fills repos, and goes on changing them: creates, updates and deletes, one at a time and several in one commit.

import { MAX_WRITES } from './client.mjs'
import { COLLECTIONS, makeKey, makeRecord } from './records.mjs'
import { Random } from './random.mjs'

const BATCH_SHARE = 0.3
const MAX_BATCH = 8

export class Writer {
  #client
  #random
  #paths = new Map()
  #counter = 0
  #running = null
  #left = new Set()
  #writing = Promise.resolve()
  #counts = { commits: 0, create: 0, update: 0, delete: 0 }
  #last = new Map()

  constructor(client, seed) {
    this.#client = client
    this.#random = new Random(seed)
  }

  /** The last rev written to each repo: `Map<did, rev>`. */
  get lastRevs() {
    return this.#last
  }

  /** Creates `count` records in one repo, in commits as large as the PDS takes. */
  async fill(did, count) {
    for (let left = count; left > 0; left -= MAX_WRITES) {
      await this.#apply(did, Array.from({ length: Math.min(left, MAX_WRITES) }, () => this.#create()))
    }
  }

  /** Writes to the repos in random order, one commit every `intervalMs`, until `stop`. */
  start(dids, intervalMs) {
    if (this.#running) throw new Error('the writer is running already')
    const stop = { asked: false }
    this.#running = { stop, done: this.#loop(dids, intervalMs, stop) }
  }

  /** Ends the writing; returns what was written since the beginning, `fill` included. */
  async stop() {
    if (this.#running) {
      this.#running.stop.asked = true
      await this.#running.done
      this.#running = null
    }
    return { ...this.#counts }
  }

  /** Writes to this repo no more until `resume`; returns once nothing is on its way to it. */
  async leave(did) {
    this.#left.add(did)
    await this.#writing
  }

  /** Writes to a repo again that was left. */
  resume(did) {
    this.#left.delete(did)
  }

  async #loop(dids, intervalMs, stop) {
    while (!stop.asked) {
      const did = this.#random.pick(dids)
      const batch = this.#random.next() < BATCH_SHARE
      if (!this.#left.has(did)) {
        this.#writing = this.#apply(did, this.#writes(did, batch ? 2 + this.#random.below(MAX_BATCH - 1) : 1))
        await this.#writing
      }
      await new Promise((resolve) => setTimeout(resolve, intervalMs))
    }
  }

  // Two writes to one path in one commit are refused by the PDS.
  #writes(did, count) {
    const touched = new Set()
    const writes = []
    while (writes.length < count) {
      const write = this.#change(did)
      const path = `${write.collection}/${write.rkey}`
      if (touched.has(path)) continue
      touched.add(path)
      writes.push(write)
    }
    return writes
  }

  #change(did) {
    const paths = this.#paths.get(did) ?? []
    const roll = this.#random.next()
    if (roll < 0.5 || paths.length < MAX_BATCH) return this.#create()
    const [collection, rkey] = this.#random.pick(paths).split('/')
    if (roll < 0.75) return { action: 'delete', collection, rkey }
    return { action: 'update', collection, rkey, value: makeRecord(this.#random, collection, 1 + this.#random.below(1000)) }
  }

  #create() {
    const collection = this.#random.pick(COLLECTIONS)
    return { action: 'create', collection, rkey: makeKey(this.#random, this.#counter++), value: makeRecord(this.#random, collection) }
  }

  async #apply(did, writes) {
    const { commit } = writes.length === 1 ? await this.#client.write(did, writes[0]) : await this.#client.applyWrites(did, writes)
    // An update that changes nothing makes no commit.
    if (!commit) return
    this.#last.set(did, commit.rev)
    this.#counts.commits += 1
    writes.forEach((write) => this.#remember(did, write))
  }

  #remember(did, { action, collection, rkey }) {
    const path = `${collection}/${rkey}`
    this.#counts[action] += 1
    const paths = this.#paths.get(did) ?? []
    if (action === 'create') paths.push(path)
    if (action === 'delete') paths[paths.indexOf(path)] = paths.at(-1)
    if (action === 'delete') paths.pop()
    this.#paths.set(did, paths)
  }
}
