// The PDS seen from outside: the XRPC calls that the network script and the fixtures need, over HTTP.

const PASSWORD = 'synthetic-password'
const CALL_TIMEOUT_MS = 30_000
const LIST_LIMIT = 100
const DELETE_ATTEMPTS = 20
const DELETE_PAUSE_MS = 100

/** The most writes that `applyWrites` takes in one call. */
export const MAX_WRITES = 200

export class XrpcError extends Error {
  constructor(method, status, body) {
    super(`${method} answered ${status}: ${body.slice(0, 300)}`)
    this.status = status
  }
}

export class Client {
  #pdsUrl
  #adminHeaders
  #tokens = new Map()

  constructor(pdsUrl, adminHeaders = {}) {
    this.#pdsUrl = pdsUrl
    this.#adminHeaders = adminHeaders
  }

  /** Creates one account with a `.test` handle. Returns `{did, handle}`. */
  async createAccount(name) {
    const handle = `${name}.test`
    const body = { handle, email: `${name}@example.test`, password: PASSWORD }
    const { did, accessJwt } = await this.post('com.atproto.server.createAccount', body)
    this.#tokens.set(did, accessJwt)
    return { did, handle }
  }

  /** One write as its own call, which makes one commit of one op. */
  async write(did, write) {
    const { action, collection, rkey, value } = write
    const where = { repo: did, collection, rkey }
    if (action === 'create') return this.post('com.atproto.repo.createRecord', { ...where, record: value }, did)
    if (action === 'update') return this.post('com.atproto.repo.putRecord', { ...where, record: value }, did)
    return this.post('com.atproto.repo.deleteRecord', where, did)
  }

  /** Several writes in one commit, at most `MAX_WRITES`. */
  async applyWrites(did, writes) {
    const tagged = writes.map(({ action, ...rest }) => ({ $type: `com.atproto.repo.applyWrites#${action}`, ...rest }))
    return this.post('com.atproto.repo.applyWrites', { repo: did, writes: tagged }, did)
  }

  /** Uploads bytes; returns the blob as a record refers to it. */
  async uploadBlob(did, bytes, mimeType) {
    const headers = { 'content-type': mimeType, ...this.#auth(did) }
    const { blob } = await this.#call('com.atproto.repo.uploadBlob', '', { method: 'POST', headers, body: bytes })
    return blob
  }

  /** Every record as the PDS itself lists it: `{path, cid, value}`, in byte order of the path. */
  async listRecords(did) {
    const { collections } = await this.get('com.atproto.repo.describeRepo', { repo: did })
    const listing = []
    for (const collection of collections) {
      let cursor
      do {
        const query = { repo: did, collection, limit: LIST_LIMIT, ...(cursor && { cursor }) }
        const page = await this.get('com.atproto.repo.listRecords', query)
        for (const { uri, cid, value } of page.records) {
          listing.push({ path: uri.slice(`at://${did}/`.length), cid, value })
        }
        cursor = page.records.length === 0 ? undefined : page.cursor
      } while (cursor)
    }
    // Paths are ASCII, so UTF-16 order is byte order.
    return listing.sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0))
  }

  /** The whole repo as CAR bytes. */
  async exportRepo(did) {
    const response = await this.#fetch('com.atproto.sync.getRepo', `?did=${encodeURIComponent(did)}`, {})
    return Buffer.from(await response.arrayBuffer())
  }

  async deactivate(did) {
    return this.post('com.atproto.server.deactivateAccount', {}, did)
  }

  async activate(did) {
    return this.post('com.atproto.server.activateAccount', undefined, did)
  }

  /** As the administrator: the account's owner would need a token that is sent by mail. */
  async deleteAccount(did) {
    const headers = { 'content-type': 'application/json', ...this.#adminHeaders }
    const init = { method: 'POST', headers, body: JSON.stringify({ did }) }
    for (let attempt = 1; ; attempt++) {
      try {
        return void (await this.#call('com.atproto.admin.deleteAccount', '', init))
      } catch (error) {
        // The PDS removes the repo's folder first, which fails while an export of it is being read; the next call goes on with that.
        if (!(error instanceof XrpcError) || error.status !== 500 || attempt === DELETE_ATTEMPTS) throw error
        await new Promise((resolve) => setTimeout(resolve, DELETE_PAUSE_MS))
      }
    }
  }

  async updateHandle(did, handle) {
    await this.post('com.atproto.identity.updateHandle', { handle }, did)
  }

  async get(method, query) {
    return this.#call(method, `?${new URLSearchParams(query)}`, {})
  }

  async post(method, body, did) {
    const headers = { ...(body !== undefined && { 'content-type': 'application/json' }), ...(did && this.#auth(did)) }
    return this.#call(method, '', { method: 'POST', headers, body: body === undefined ? undefined : JSON.stringify(body) })
  }

  #auth(did) {
    return { authorization: `Bearer ${this.#tokens.get(did)}` }
  }

  async #call(method, query, init) {
    const text = await (await this.#fetch(method, query, init)).text()
    return text === '' ? {} : JSON.parse(text)
  }

  async #fetch(method, query, init) {
    const url = `${this.#pdsUrl}/xrpc/${method}${query}`
    const response = await fetch(url, { ...init, signal: AbortSignal.timeout(CALL_TIMEOUT_MS) })
    if (!response.ok) throw new XrpcError(method, response.status, await response.text())
    return response
  }
}
