// Makes fixtures/cars and fixtures/expected anew with the reference PDS and PLC.
//
//   node make-fixtures.mjs [NAME...]      (all of them without names)
//
// What the repos hold comes from fixed seeds, but DIDs, keys, revs and signatures are new each time: the fixtures are
// made once and committed. For each NAME: cars/NAME.car, expected/NAME.jsonl.gz or NAME.jsonl (the PDS's own listing, one
// `{path, cid, value}` a line, by path), expected/NAME.did.json (the DID document) and a row on stdout for fixtures/README.md.

import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { gzipSync } from 'node:zlib'
import { readCarWithRoot, cborToLexRecord } from '@atproto/repo'
import { Client } from './lib/client.mjs'
import { FIXTURES } from './lib/fixtures.mjs'
import { startNetwork } from './lib/network.mjs'

const GZIP_ABOVE_BYTES = 100_000
const LIFETIME_MS = 600_000
const OUT = path.join(import.meta.dirname, '../../fixtures')

function writeListing(name, records) {
  const text = records.map((record) => `${JSON.stringify(record)}\n`).join('')
  const file = path.join(OUT, 'expected', `${name}.jsonl`)
  if (text.length > GZIP_ABOVE_BYTES) writeFileSync(`${file}.gz`, gzipSync(text, { level: 9 }))
  else writeFileSync(file, text)
}

async function didDocument(plcUrl, did) {
  const response = await fetch(`${plcUrl}/${did}`)
  if (!response.ok) throw new Error(`the PLC answered ${response.status} for ${did}`)
  return response.json()
}

async function make(name, client, plcUrl) {
  const { did } = await client.createAccount(`fx-${name}`)
  await FIXTURES[name](client, did)
  const car = await client.exportRepo(did)
  const records = await client.listRecords(did)
  writeFileSync(path.join(OUT, 'cars', `${name}.car`), car)
  writeListing(name, records)
  writeFileSync(path.join(OUT, 'expected', `${name}.did.json`), `${JSON.stringify(await didDocument(plcUrl, did), null, 2)}\n`)
  const { root, blocks } = await readCarWithRoot(car)
  const { rev } = cborToLexRecord(blocks.get(root))
  process.stdout.write(`| \`${name}\` | ${records.length} | ${blocks.size} | ${car.length} | \`${rev}\` | \`${did}\` |\n`)
}

const wanted = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(FIXTURES)
const unknown = wanted.filter((name) => !Object.hasOwn(FIXTURES, name))
if (unknown.length > 0) throw new Error(`no such fixture: ${unknown}`)
for (const folder of ['cars', 'expected']) mkdirSync(path.join(OUT, folder), { recursive: true })
setTimeout(() => process.exit(1), LIFETIME_MS).unref()
const network = await startNetwork()
const client = new Client(network.pdsUrl)
for (const name of wanted) await make(name, client, network.plcUrl)
await network.close()
process.exit(0)
