/** Reading and writing safetensors files: 8 bytes of header length, a JSON header, the data. */

import { readFileSync, writeFileSync } from 'node:fs'

export interface Tensor {
  dtype: string
  shape: number[]
  /** The tensor's data in memory of its own: 4-byte aligned, and writing to it touches no other. */
  bytes: Buffer
}

/** The tensors of a file by name, in the order of its header. */
export function readTensors(path: string): Map<string, Tensor> {
  const file = readFileSync(path)
  const data = 8 + Number(file.readBigUInt64LE(0))
  const header: Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }> = JSON.parse(
    file.toString('utf8', 8, data),
  )
  delete header.__metadata__
  return new Map(
    Object.entries(header).map(
      ([
        name,
        {
          dtype,
          shape,
          data_offsets: [from, to],
        },
      ]) => {
        const bytes = Buffer.from(new Uint8Array(file.subarray(data + from, data + to)).buffer)
        return [name, { dtype, shape, bytes }]
      },
    ),
  )
}

/** Writes a file with these tensors, one after the other. */
export function writeTensors(path: string, tensors: ReadonlyMap<string, Tensor>): void {
  let offset = 0
  const entries = [...tensors].map(([name, { dtype, shape, bytes }]) => {
    const from = offset
    offset += bytes.length
    return [name, { dtype, shape, data_offsets: [from, offset] }]
  })
  let header = JSON.stringify(Object.fromEntries(entries))
  header += ' '.repeat((8 - (Buffer.byteLength(header) % 8)) % 8)
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(Buffer.byteLength(header)))
  writeFileSync(path, Buffer.concat([size, Buffer.from(header), ...Array.from(tensors.values(), ({ bytes }) => bytes)]))
}
