// The reference PLC and PDS in this process, on loopback, with all their files in one temporary folder.

import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { mkdtempSync, rmSync } from 'node:fs'

const LOOPBACK = '127.0.0.1'

// Neither server takes an address to listen on, and Node's default is every interface.
function listenOnLoopbackOnly() {
  const listen = net.Server.prototype.listen
  net.Server.prototype.listen = function (...args) {
    const [first] = args
    if (typeof first === 'number' || typeof first === 'string') {
      args[0] = { port: Number(first), host: LOOPBACK }
    } else if (first !== null && typeof first === 'object' && first.host === undefined && first.path === undefined) {
      args[0] = { ...first, host: LOOPBACK }
    }
    return listen.apply(this, args)
  }
}

// A client that ends while it reads an export, as one that is killed does, is nothing to report.
function keepQuietAboutLostClients() {
  const { error } = console
  console.error = (...args) => String(args[0]).includes('ERR_STREAM_PREMATURE_CLOSE') || error.apply(console, args)
}

/**
 * Starts both servers on random free ports.
 *
 * Returns `{plcUrl, pdsUrl, adminHeaders, close}`; `adminHeaders` are what a request to the PDS needs to be its
 * administrator's, `close` stops both and removes their files.
 */
export async function startNetwork() {
  listenOnLoopbackOnly()
  keepQuietAboutLostClients()
  const dir = mkdtempSync(path.join(os.tmpdir(), 'atproto-backfill-interop-'))
  process.env.TMPDIR = dir
  // Synchronous, so that it also runs where nothing can be awaited any more.
  process.on('exit', () => rmSync(dir, { recursive: true, force: true }))

  // The package's index also loads the app view and the moderation service, which this does not need.
  const { TestNetworkNoAppView } = await import('@atproto/dev-env/dist/network-no-appview.js')
  const network = await TestNetworkNoAppView.create({})
  return {
    plcUrl: `http://${LOOPBACK}:${network.plc.port}`,
    pdsUrl: `http://${LOOPBACK}:${network.pds.port}`,
    adminHeaders: network.pds.adminAuthHeaders(),
    close: () => network.close(),
  }
}
