// The reference PLC and PDS on loopback, driven by JSON lines.
//
//   node network.mjs [--lifetime SECONDS]
//
// Prints first `{"event":"ready","plc":URL,"pds":URL}`, then every event of the PDS's firehose as it happens (see
// lib/firehose.mjs). Each line on stdin is a command `{"cmd":NAME,...}`, answered in order by one line
// `{"event":"done","cmd":NAME,...}` or `{"event":"failed","cmd":NAME,"error":TEXT}`:
//
//   accounts {names}                     -> {accounts: [{did, handle}]}
//   fill {did, records}                  -> {}            creates that many records
//   start {dids, intervalMs}             -> {}            begins to write to these repos
//   stop {}                              -> {commits, create, update, delete}   ends that
//   write {did, writes}                  -> {}            one commit; a write is {action, collection, rkey, value}
//   list {did}                           -> {records: [{path, cid, value}]}     the PDS's own listing, by path
//   export {did, file}                   -> {bytes}       writes the repo's CAR to the file
//   deactivate {did} / activate {did}    -> {}            the writer leaves it alone meanwhile
//   delete {did}                         -> {}            deletes the account, for good
//   handle {did, handle}                 -> {}            changes the account's handle
//
// `fill`, `stop` and `write` are answered only after the events of all that they wrote were printed. The process ends
// when stdin closes, on SIGTERM or SIGINT, when its parent is gone, and in any case after its lifetime (default 900 s).

import { writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import { Client } from './lib/client.mjs'
import { Firehose } from './lib/firehose.mjs'
import { startNetwork } from './lib/network.mjs'
import { Writer } from './lib/writer.mjs'

const CLOSE_TIMEOUT_MS = 5_000
const PARENT_CHECK_MS = 1_000

const { values: options } = parseArgs({
  options: { lifetime: { type: 'string', default: '900' }, seed: { type: 'string', default: '1' } },
})

function print(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`)
}

/** Ends this process when nobody is left to end it. */
function watch(end) {
  const parent = process.ppid
  setTimeout(() => end('lifetime over'), Number(options.lifetime) * 1000).unref()
  setInterval(() => process.ppid !== parent && end('parent gone'), PARENT_CHECK_MS).unref()
  process.stdout.on('error', () => process.exit(1))
  process.on('SIGTERM', () => end('SIGTERM'))
  process.on('SIGINT', () => end('SIGINT'))
}

function commands({ client, writer, firehose }) {
  const printed = async (result) => {
    for (const [did, rev] of writer.lastRevs) await firehose.reached(did, rev)
    return result
  }
  return {
    accounts: async ({ names }) => {
      const accounts = []
      for (const name of names) accounts.push(await client.createAccount(name))
      return { accounts }
    },
    fill: async ({ did, records }) => printed(await writer.fill(did, records)),
    start: async ({ dids, intervalMs }) => writer.start(dids, intervalMs),
    stop: async () => printed(await writer.stop()),
    write: async ({ did, writes }) => {
      const { commit } = await client.applyWrites(did, writes)
      if (commit) await firehose.reached(did, commit.rev)
    },
    list: async ({ did }) => ({ records: await client.listRecords(did) }),
    export: async ({ did, file }) => {
      const car = await client.exportRepo(did)
      writeFileSync(file, car)
      return { bytes: car.length }
    },
    deactivate: async ({ did }) => {
      await writer.leave(did)
      await client.deactivate(did)
    },
    activate: async ({ did }) => {
      await client.activate(did)
      writer.resume(did)
    },
    delete: async ({ did }) => {
      await writer.leave(did)
      // The PDS deletes events of the account as well; those that were not printed by now never will be.
      writer.lastRevs.delete(did)
      await client.deleteAccount(did)
    },
    handle: async ({ did, handle }) => void (await client.updateHandle(did, handle)),
  }
}

async function obey(table, line) {
  let cmd = null
  try {
    const { cmd: name, ...input } = JSON.parse(line)
    cmd = name
    if (!Object.hasOwn(table, name)) throw new Error('no such command')
    print({ event: 'done', cmd, ...(await table[name](input)) })
  } catch (error) {
    print({ event: 'failed', cmd, error: String(error?.stack ?? error) })
  }
}

async function main() {
  let network
  const end = async (why) => {
    if (why) process.stderr.write(`network.mjs: ending, ${why}\n`)
    setTimeout(() => process.exit(1), CLOSE_TIMEOUT_MS).unref()
    await network?.close().catch(() => {})
    process.exit(0)
  }
  watch(end)
  // Lines that come before the servers are up wait in the stream.
  const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  network = await startNetwork()
  const client = new Client(network.pdsUrl, network.adminHeaders)
  const firehose = new Firehose(network.pdsUrl, print)
  await firehose.opened()
  const writer = new Writer(client, Number(options.seed))
  print({ event: 'ready', plc: network.plcUrl, pds: network.pdsUrl })
  const table = commands({ client, writer, firehose })
  for await (const line of input) await obey(table, line)
  await writer.stop()
  firehose.close()
  await end()
}

await main()
