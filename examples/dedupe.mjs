// Near-duplicates in a list of titles: `node examples/dedupe.mjs`.
//
// Texts belong together when their similarity is above a threshold, directly or through others (single linkage). The
// comparison of all pairs is fine for some thousand texts; beyond that, ask an index for each text's neighbours.

import { NativeEmbeddingService } from 'simile'

const THRESHOLD = 0.75
const titles = [
  'Payment fails with an expired card',
  'App crashes when I rotate the phone',
  'Dark mode for the settings page',
  'Card payment is declined because the card has expired',
  'Crash on screen rotation',
  'Export the report as PDF',
  'Settings page: please add a dark theme',
  'How do I change my e-mail address?',
]

const service = new NativeEmbeddingService()
const vectors = await service.embed(titles)
if (vectors.truncated > 0) console.log(`${vectors.truncated} titles were cut before they were compared`)

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0)
const group = titles.map((_, i) => i)
for (let i = 0; i < titles.length; i++) {
  for (let j = 0; j < i; j++) {
    if (dot(vectors[i], vectors[j]) < THRESHOLD || group[i] === group[j]) continue
    const [kept, merged] = [group[j], group[i]]
    for (let k = 0; k <= i; k++) if (group[k] === merged) group[k] = kept
  }
}

const members = new Map()
for (const [i, title] of titles.entries()) members.set(group[i], [...(members.get(group[i]) ?? []), title])
const groups = [...members.values()].filter((texts) => texts.length > 1)
console.log(`${groups.length} groups of near-duplicates among ${titles.length} titles`)
for (const texts of groups) console.log(`\n${texts.map((title) => `  ${title}`).join('\n')}`)
