/** simile as its users call it: all texts in one call, rows out. */

import path from 'node:path'
import { pathToFileURL } from 'node:url'

let model

/** @param {{ root: string, model: string, threads: number }} options `root`: the checkout whose build is loaded */
export async function load({ root, model: folder, threads }) {
  const { TextEmbedding } = await import(pathToFileURL(path.join(root, 'dist/esm/index.js')).href)
  model = await TextEmbedding.load(folder, { threads })
}

/** @param {string[]} texts */
export function embed(texts) {
  return model.embed(texts)
}
