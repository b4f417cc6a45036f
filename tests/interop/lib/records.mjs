// Synthetic records: made-up collections, words that mean nothing, no real person's data.

/** Collections without a published lexicon, so that the PDS stores whatever the data model allows. */
export const COLLECTIONS = ['com.example.note', 'com.example.star', 'com.example.graph.tie', 'com.example.profile']

const SYLLABLES = ['ka', 'lo', 'mi', 'ren', 'su', 'tai', 'vo', 'zen', 'bru', 'delt', 'ünn', '雪', '🜁']
const EPOCH_MS = Date.UTC(2024, 0, 1)

function words(random, count) {
  const word = () => Array.from({ length: 1 + random.below(3) }, () => random.pick(SYLLABLES)).join('')
  return Array.from({ length: count }, word).join(' ')
}

/** A record of the collection; equal calls on equal randomness give equal records. */
export function makeRecord(random, collection, revision = 0) {
  const createdAt = new Date(EPOCH_MS + random.below(31_536_000) * 1000).toISOString()
  switch (collection) {
    case 'com.example.star':
      return { $type: collection, subject: `at://did:web:example.test/com.example.note/${random.below(1_000_000)}`, createdAt }
    case 'com.example.graph.tie':
      return { $type: collection, subject: `did:web:n${random.below(1_000_000)}.example.test`, createdAt }
    case 'com.example.profile':
      return { $type: collection, displayName: words(random, 2), revision, createdAt }
    default:
      return { $type: collection, text: words(random, 2 + random.below(12)), revision, langs: ['zxx'], createdAt }
  }
}

/** A record key no other call on the same counter gives. */
export function makeKey(random, counter) {
  return `k${counter.toString(36).padStart(5, '0')}${random.below(36 ** 4).toString(36)}`
}
