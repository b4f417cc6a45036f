// The PDS's own firehose, read as the truth about what each commit did.

import WebSocket from 'ws'
import { cborDecodeMulti } from '@atproto/common'
import { cborToLexRecord, readCar } from '@atproto/repo'
import { lexToJson } from '@atproto/lexicon'

/**
 * Subscribes from the first event on and calls `onEvent` with each, in the order of the firehose.
 *
 * A `#commit` becomes `{event: 'commit', seq, did, rev, since, prevData, data, commit, ops, frame}`, an op
 * `{action, path, cid, prev, value, bytes}` (`value` as JSON, `bytes` the record block in base64; both null for a
 * delete). Any other message becomes `{event, seq, did, frame}`. `frame` is the message as received, in base64.
 */
export class Firehose {
  #socket
  #onEvent
  #chain = Promise.resolve()
  #revs = new Map()
  #waiters = []

  constructor(pdsUrl, onEvent) {
    this.#onEvent = onEvent
    this.#socket = new WebSocket(`${pdsUrl.replace('http', 'ws')}/xrpc/com.atproto.sync.subscribeRepos?cursor=0`)
    // Decoding is asynchronous; the chain keeps the events in their order.
    this.#socket.on('message', (bytes) => (this.#chain = this.#chain.then(() => this.#receive(bytes))))
  }

  async opened() {
    if (this.#socket.readyState === WebSocket.OPEN) return
    await new Promise((resolve, reject) => this.#socket.once('open', resolve).once('error', reject))
  }

  /** Resolves once a commit of the repo at this rev, or at a later one, has been passed on. */
  reached(did, rev) {
    if ((this.#revs.get(did) ?? '') >= rev) return Promise.resolve()
    return new Promise((resolve) => this.#waiters.push({ did, rev, resolve }))
  }

  close() {
    this.#socket.terminate()
  }

  async #receive(bytes) {
    const [header, body] = cborDecodeMulti(bytes)
    const frame = bytes.toString('base64')
    if (header.op !== 1 || header.t !== '#commit') {
      return this.#onEvent({ event: header.t?.slice(1) ?? 'error', seq: body.seq, did: body.did, frame })
    }
    const { blocks } = await readCar(body.blocks)
    this.#onEvent({
      event: 'commit',
      seq: body.seq,
      did: body.repo,
      rev: body.rev,
      since: body.since ?? null,
      prevData: body.prevData?.toString() ?? null,
      data: cborToLexRecord(blocks.get(body.commit)).data.toString(),
      commit: body.commit.toString(),
      ops: body.ops.map((op) => describeOp(op, blocks)),
      frame,
    })
    this.#advance(body.repo, body.rev)
  }

  #advance(did, rev) {
    this.#revs.set(did, rev)
    const done = (waiter) => waiter.did === did && waiter.rev <= rev
    this.#waiters.filter(done).forEach((waiter) => waiter.resolve())
    this.#waiters = this.#waiters.filter((waiter) => !done(waiter))
  }
}

function describeOp({ action, path, cid, prev }, blocks) {
  const bytes = cid ? blocks.get(cid) : undefined
  return {
    action,
    path,
    cid: cid?.toString() ?? null,
    prev: prev?.toString() ?? null,
    value: bytes ? lexToJson(cborToLexRecord(bytes)) : null,
    bytes: bytes ? Buffer.from(bytes).toString('base64') : null,
  }
}
