/** The registry as the page of the documentation has it. */

import type { ModelKind, RegistryEntry } from 'simile'

const HEADINGS: Record<ModelKind, string> = {
  dense: 'Dense',
  sparse: 'Sparse',
  'multi-vector': 'Multi-vector',
  rerank: 'Rerank',
}

const COLUMNS = [
  'model',
  'family',
  'dimensions',
  'tokens',
  'pooling',
  'can be cut to',
  'licence',
  'MB',
  'rests on',
  'notes',
]

/** Tables of all rows, one for each kind. */
export function registryTables(rows: readonly RegistryEntry[]): string {
  return (Object.keys(HEADINGS) as ModelKind[])
    .map((kind) => {
      const lines = rows.filter((row) => row.kind === kind).map((row) => `| ${cells(row).join(' | ')} |`)
      const head = [`| ${COLUMNS.join(' | ')} |`, `|${COLUMNS.map(() => '---').join('|')}|`]
      return `## ${HEADINGS[kind]}\n\n${[...head, ...lines].join('\n')}\n`
    })
    .join('\n')
}

function cells(row: RegistryEntry): string[] {
  const { matryoshka } = row
  const cuts = Array.isArray(matryoshka) ? matryoshka.join(', ') : matryoshka ? 'any' : '-'
  const notes = [
    row.queryTemplate && `query \`${shown(row.queryTemplate)}\``,
    row.passageTemplate && `passage \`${shown(row.passageTemplate)}\``,
    row.defaultInstruction && `instruction "${row.defaultInstruction}"`,
    row.layerNormBeforeCut && 'LayerNorm before a cut',
    row.gated && 'gated',
    row.notes,
    row.unsupported && `**not supported**: ${row.unsupported}`,
  ]
  return [
    row.id,
    row.family,
    row.dimensions?.toString() ?? '-',
    row.maxLength?.toString() ?? 'any',
    row.pooling.join(', ') || '-',
    cuts,
    row.license,
    row.sizeBytes === null ? '?' : (row.sizeBytes / 1e6).toString(),
    row.evidence,
    notes.filter(Boolean).join('; ') || '-',
  ]
}

function shown(template: string): string {
  return template.replaceAll('\n', '\\n').replaceAll('|', '\\|')
}
