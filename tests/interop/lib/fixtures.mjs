// What each fixture repo holds. A fixture is a name and a function that fills the account's repo.

import { COLLECTIONS, makeKey, makeRecord } from './records.mjs'
import { Random } from './random.mjs'
import { MAX_WRITES } from './client.mjs'

const NOTE = 'com.example.note'

const create = (collection, rkey, value) => ({ action: 'create', collection, rkey, value: { $type: collection, ...value } })
const update = (collection, rkey, value) => ({ action: 'update', collection, rkey, value: { $type: collection, ...value } })
const remove = (collection, rkey) => ({ action: 'delete', collection, rkey })

async function write(client, did, writes, perCommit = MAX_WRITES) {
  for (let i = 0; i < writes.length; i += perCommit) await client.applyWrites(did, writes.slice(i, i + perCommit))
}

function randomCreates(seed, count, collections) {
  const random = new Random(seed)
  return Array.from({ length: count }, (_, counter) => {
    const collection = random.pick(collections)
    return create(collection, makeKey(random, counter), makeRecord(random, collection))
  })
}

async function one(client, did) {
  await write(client, did, [create(NOTE, 'only', { text: 'the only record' })])
}

async function hundred(client, did) {
  await write(client, did, randomCreates(100, 100, [NOTE]), 7)
}

async function twoThousand(client, did) {
  await write(client, did, randomCreates(2000, 2000, COLLECTIONS))
}

// Names that are prefixes of each other: `.` and `-` sort before the `/` that ends a collection, letters after it.
async function collections(client, did) {
  const names = ['com.example.a', 'com.example.a.b', 'com.example.a.b.c', 'com.example.aa', 'com.example-a.a', 'com.example.aB']
  names.push('com.exampl.a', 'net.example.a', 'com.example.a1', 'com.example.a.bc', 'com.example.a.bC', 'org.0example.a')
  const random = new Random(12)
  await write(client, did, names.flatMap((name) => [1, 2, 3, 4, 5].map((n) => create(name, `r${n}`, { n, pick: random.below(100) }))))
}

async function churned(client, did) {
  const keys = Array.from({ length: 300 }, (_, n) => `c${n}`)
  await write(client, did, keys.map((key, n) => create(NOTE, key, { n, revision: 0 })))
  await write(client, did, keys.filter((_, n) => n % 3 === 0).map((key, n) => update(NOTE, key, { n, revision: 1 })), 10)
  await write(client, did, keys.filter((_, n) => n % 4 === 1).map((key) => remove(NOTE, key)), 9)
  await write(client, did, keys.filter((_, n) => n % 8 === 1).map((key, n) => create(NOTE, key, { n, revision: 2 })), 8)
  await write(client, did, [update(NOTE, 'c2', { n: 2, revision: 3 }), remove(NOTE, 'c3'), create(NOTE, 'late', { n: 301, revision: 3 })])
}

async function emptied(client, did) {
  const creates = randomCreates(40, 40, COLLECTIONS)
  await write(client, did, creates)
  await write(client, did, creates.map(({ collection, rkey }) => remove(collection, rkey)), 20)
}

async function keys(client, did) {
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
  const single = [...'-_~:0123456789', ...letters]
  const shapes = ['self', '...', '.a', 'a.', 'a..b', '~1.2-3_', 'literal:self', 'did:web:example.test', '3jui7kd54zh2y', '-'.repeat(64), ':'.repeat(64)]
  shapes.push('~'.repeat(512), 'x'.repeat(511), `${'x'.repeat(511)}y`, `${letters}0123456789.-_~:`, 'Self', 'SELF', '__proto__', 'constructor')
  await write(client, did, [...single, ...shapes].map((key, n) => create(NOTE, key, { n })))
  // The longest NSID there is, and with the longest key the longest path: 317 + 1 + 512 bytes.
  const longest = `com.${`${'d'.repeat(61)}.`.repeat(4)}${'e'.repeat(1)}.${'n'.repeat(63)}`
  await write(client, did, [create(longest, 'k'.repeat(512), { n: -1 }), create(longest, 'a', { n: -2 })])
}

function oddValues() {
  const link = (cid) => ({ $link: cid })
  const record = 'bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm'
  const raw = 'bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e'
  const edges = [0, 1, 23, 24, 255, 256, 65535, 65536, 2 ** 32 - 1, 2 ** 32, Number.MAX_SAFE_INTEGER]
  const deep = (levels) => (levels === 0 ? { end: true } : levels % 2 ? [deep(levels - 1)] : { d: deep(levels - 1) })
  return {
    integers: { positive: edges, negative: edges.map((n) => -1 - n).filter(Number.isSafeInteger), least: Number.MIN_SAFE_INTEGER },
    unicode: { text: 'naïve 雪 🜁👩‍👩‍👧 e\u0301 \u202ertl\u202c \u0000 \u001f \u007f \u2028 \ufeff \uffff \u{10ffff}', ключ: 'ключ', '🜁': '🜁' },
    escapes: { text: '"\\/\b\f\n\r\t</script>', 'a"b\\c': 'quoted key' },
    bytes: { none: { $bytes: '' }, one: { $bytes: 'AA' }, two: { $bytes: '//8' }, three: { $bytes: '+/+/' }, many: { $bytes: Buffer.alloc(1000, 0xa5).toString('base64') } },
    links: { record: link(record), raw: link(raw), list: [link(record), { in: link(raw) }], text: record },
    nesting: { deep: deep(26), wide: Array.from({ length: 300 }, (_, n) => n % 2 === 0) },
    empties: { nothing: null, text: '', list: [], map: {}, lists: [[], [[]]], no: false, yes: true },
    'key-order': { b: 1, a: 2, aa: 3, B: 4, ab: 5, 10: 6, 9: 7, é: 8, z: 9, aaaaaaaaaaaaaaaaaaaaaaaa: 10 },
    'long-text': { text: 'lorem 雪 '.repeat(2000) },
    'typed-inside': { embed: { $type: 'com.example.embed#view', refs: [{ $type: 'com.example.ref', uri: 'at://did:web:example.test' }] } },
    'type-only': {},
  }
}

async function values(client, did) {
  const blob = await client.uploadBlob(did, Buffer.from('synthetic blob, no picture'), 'text/plain')
  const odd = { ...oddValues(), blob: { file: blob, several: [{ alt: 'first', file: blob }] } }
  await write(client, did, Object.entries(odd).map(([key, value]) => create('com.example.value', key, value)))
}

// One block, several paths: neighbours, far apart, in one commit and in a later one, and after one of them is gone.
async function twins(client, did) {
  const same = { text: 'the same at several paths' }
  await write(client, did, ['a', 'b', 'm', 'z'].map((key) => create(NOTE, key, same)))
  await write(client, did, randomCreates(60, 60, [NOTE, 'com.example.star']))
  await write(client, did, [remove(NOTE, 'm'), create(NOTE, 'n', same)])
}

export const FIXTURES = {
  empty: async () => {},
  one,
  hundred,
  'two-thousand': twoThousand,
  collections,
  churned,
  emptied,
  keys,
  values,
  twins,
}
