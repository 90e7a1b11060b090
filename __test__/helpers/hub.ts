/** A hub on loopback that serves a toy checkpoint, and misbehaves when it is told to. */

import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { tiny } from './models.ts'

export const ID = 'acme/tiny'
export const COMMIT = '0123456789abcdef0123456789abcdef01234567'
/** What the commit is known by. */
const REVISIONS = ['main', 'v1', 'refs/pr/1', COMMIT]
export const WEIGHTS = 'model.safetensors'

/** What an answer is about: a file, or `undefined` for the listing and everything else. */
export interface Asked {
  file: string | undefined
  request: IncomingMessage
  response: ServerResponse
  /** What the hub would send. */
  body: Buffer
  /** The sensible answer. */
  serve(): void
}

/** Answers in the hub's place, or leaves it to the hub by returning `false`. */
export type Fault = (asked: Asked) => unknown

export interface Seen {
  method: string
  path: string
  authorization: string | undefined
  range: string | undefined
}

export interface HubOptions {
  /** Files by name. Default: those of a toy checkpoint, beside weights in formats that nobody should fetch. */
  files?: Map<string, Buffer>
  fault?: Fault
  /** Certificate and key, for https. */
  tls?: { cert: Buffer; key: Buffer }
}

/** The files of a toy checkpoint. */
export function tinyFiles(name = 'tiny-bert-cls'): Map<string, Buffer> {
  const root = tiny(name)
  const files = new Map<string, Buffer>()
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const path = join(entry.parentPath, entry.name)
    files.set(
      path
        .slice(root.length + 1)
        .split('\\')
        .join('/'),
      readFileSync(path),
    )
  }
  return files
}

export function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}

/** Git's id of a file's content. */
export function gitId(content: Buffer): string {
  return createHash('sha1').update(`blob ${content.length}\0`).update(content).digest('hex')
}

/** Large files are known by their SHA-256, others by git's id. */
export function isLarge(name: string): boolean {
  return /\.(safetensors|bin|onnx)$/.test(name)
}

export function etag(name: string, content: Buffer): string {
  return isLarge(name) ? sha256(content) : gitId(content)
}

export class Hub {
  readonly url: string
  readonly seen: Seen[] = []
  /** Connections that were ever opened. */
  connections = 0
  /** Bytes of content that were sent, by file. */
  readonly sent = new Map<string, number>()
  readonly files: Map<string, Buffer>
  fault: Fault | undefined
  readonly #server: Server

  private constructor(server: Server, { files, fault, tls }: HubOptions) {
    this.#server = server
    this.url = `${tls ? 'https' : 'http'}://127.0.0.1:${(server.address() as AddressInfo).port}`
    this.fault = fault
    this.files =
      files ??
      new Map([
        ...tinyFiles(),
        ['README.md', Buffer.from('# A toy')],
        ['pytorch_model.bin', Buffer.from('a pickle')],
        ['onnx/model.onnx', Buffer.from('a graph')],
      ])
    server.on('connection', () => {
      this.connections++
    })
    server.on('request', (request, response) => this.#answer(request, response))
  }

  static async start(options: HubOptions = {}): Promise<Hub> {
    const server = options.tls ? createSecureServer(options.tls) : createServer()
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return new Hub(server, options)
  }

  /** Is told of every request to be a proxy, each of which is refused. */
  onConnect(listener: (target: string) => void): void {
    this.#server.on('connect', (request, socket) => {
      listener(request.url ?? '')
      socket.end('HTTP/1.1 403 Forbidden\r\n\r\n')
    })
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  /** Names of the files that were asked for. */
  get fetched(): string[] {
    return this.seen.flatMap(({ path }) => fileOf(path) ?? [])
  }

  listing(): object {
    const siblings = Array.from(this.files, ([rfilename, content]) => ({
      rfilename,
      size: content.length,
      blobId: gitId(content),
      ...(isLarge(rfilename) && { lfs: { sha256: sha256(content), size: content.length, pointerSize: 130 } }),
    }))
    return { _id: 'x', id: ID, sha: COMMIT, private: false, siblings }
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const path = (request.url ?? '').split('?', 1)[0] as string
    const { authorization, range } = request.headers
    this.seen.push({ method: request.method ?? '', path, authorization, range })
    const file = fileOf(path)
    const body = file === undefined ? Buffer.from(JSON.stringify(this.listing())) : this.files.get(file)
    const serve = () => this.#serve(file, path, request, response, body)
    const asked = { file, request, response, body: body ?? Buffer.alloc(0), serve }
    if (this.fault === undefined || this.fault(asked) === false) serve()
  }

  #serve(
    file: string | undefined,
    path: string,
    request: IncomingMessage,
    response: ServerResponse,
    body: Buffer | undefined,
  ): void {
    if (file === undefined) {
      this.#serveApi(path, response)
      return
    }
    if (body === undefined) {
      refuse(response, 404, 'EntryNotFound', 'Entry not found')
      return
    }
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
    const part = body.subarray(from)
    response.setHeader('ETag', `"${etag(file, body)}"`)
    response.setHeader('X-Repo-Commit', COMMIT)
    response.setHeader('Content-Length', part.length)
    response.setHeader('Accept-Ranges', 'bytes')
    if (from > 0) response.setHeader('Content-Range', `bytes ${from}-${body.length - 1}/${body.length}`)
    response.writeHead(from > 0 ? 206 : 200)
    if (request.method === 'HEAD') {
      response.end()
      return
    }
    this.count(file, part.length)
    response.end(part)
  }

  #serveApi(path: string, response: ServerResponse): void {
    const revision = decodeURIComponent(path.split('/revision/')[1] ?? 'main')
    if (!path.startsWith(`/api/models/${ID}`)) refuse(response, 404, 'RepoNotFound', 'Repository not found')
    else if (path.startsWith(`/api/models/${ID}/tree/`)) this.#json(response, this.#tree())
    else if (REVISIONS.includes(revision)) this.#json(response, this.listing())
    else refuse(response, 404, 'RevisionNotFound', `Invalid rev id: ${revision}`)
  }

  count(file: string, bytes: number): void {
    this.sent.set(file, (this.sent.get(file) ?? 0) + bytes)
  }

  #json(response: ServerResponse, value: object): void {
    response.setHeader('Content-Type', 'application/json')
    response.end(JSON.stringify(value))
  }

  #tree(): object {
    return Array.from(this.files, ([path, content]) => ({
      type: 'file',
      path,
      size: content.length,
      oid: gitId(content),
      ...(isLarge(path) && { lfs: { oid: sha256(content), size: content.length, pointerSize: 130 } }),
    }))
  }
}

function fileOf(path: string): string | undefined {
  const start = `/${ID}/resolve/`
  if (!path.startsWith(start)) return undefined
  return path.slice(start.length).split('/').slice(1).map(decodeURIComponent).join('/')
}

/** A refusal as a hub words it. */
export function refuse(response: ServerResponse, status: number, code?: string, message?: string): void {
  if (code !== undefined) response.setHeader('X-Error-Code', code)
  if (message !== undefined) response.setHeader('X-Error-Message', message)
  response.writeHead(status, { 'Content-Type': 'application/json' })
  response.end(JSON.stringify({ error: message }))
}

/** Sends the beginning of a body that was announced whole, then cuts the connection. */
export function cutAfter({ response, body }: Asked, bytes: number, hub?: Hub, file?: string): void {
  response.writeHead(200, { 'Content-Length': body.length })
  if (hub !== undefined && file !== undefined) hub.count(file, bytes)
  response.write(body.subarray(0, bytes), () => response.destroy())
}
