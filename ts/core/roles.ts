/**
 * What a text is for. A retrieval model may put a prompt in front of a query, in front of a passage,
 * or both; the prompt belongs to the model, so a caller names the role and never writes the prompt.
 */

import { InvalidInputError } from './errors'
import { describe, excerpt } from './validation'

/** `generic` has no prompt, whatever the model; `query` looks for something; `passage` is what is found. */
export type EmbeddingRole = 'generic' | 'query' | 'passage'

/** Every role. */
export const EMBEDDING_ROLES = ['generic', 'query', 'passage'] as const satisfies readonly EmbeddingRole[]

/**
 * Which queue a call waits in. `interactive` work is done before `bulk` work, which keeps a tenth
 * of the computing. A call that does not say is interactive when it embeds at most
 * {@link INTERACTIVE_TEXTS} texts as queries or is an `embedOne`, and bulk otherwise.
 */
export type Priority = 'interactive' | 'bulk'

/** The most texts of one call that are taken for interactive work without being asked to. */
export const INTERACTIVE_TEXTS = 16

/** The priority of a call of the given role and size; what the caller asked for comes first. */
export function priorityOf(role: EmbeddingRole, count: number, asked?: Priority): Priority {
  return asked ?? (role === 'query' && count <= INTERACTIVE_TEXTS ? 'interactive' : 'bulk')
}

/** The priority of counting the tokens of so many texts: few go before bulk work, as few queries do. */
export function countPriority(count: number): Priority {
  return count <= INTERACTIVE_TEXTS ? 'interactive' : 'bulk'
}

/** Checks a role that came from outside. */
export function checkRole(role: unknown): EmbeddingRole {
  if ((EMBEDDING_ROLES as readonly unknown[]).includes(role)) return role as EmbeddingRole
  throw new InvalidInputError(`role must be one of ${EMBEDDING_ROLES.join(', ')}, not ${describe(role)}`, {
    option: 'role',
    allowed: EMBEDDING_ROLES,
  })
}

/** A model's prompt: `{text}` stands for the text, `{instruction}` for the task. `null`: the text as it is. */
export type PromptTemplate = string | null

/** The prompt of one role, and what `{instruction}` in it stands for when a call gives none. */
export interface Prompt {
  /** The prompt; `null`: none. */
  readonly template: PromptTemplate
  /** The default of `{instruction}`; `null`: it must be given. */
  readonly defaultInstruction: string | null
}

/**
 * Texts in a prompt. Both placeholders are replaced in one pass over the template, so braces in a text or
 * in the instruction stay what they are. The addon does the same for the models that it computes.
 *
 * @throws {@link InvalidInputError} for an instruction that the prompt has no place for, or needs and lacks.
 */
export function applyPrompt(prompt: Prompt, texts: readonly string[], given?: string): readonly string[] {
  const { template, defaultInstruction } = prompt
  const takesInstruction = template?.includes('{instruction}') ?? false
  if (given !== undefined && !takesInstruction) {
    throw new InvalidInputError(
      `an instruction was given, but the prompt (${excerpt(JSON.stringify(template))}) has no place for one`,
      { option: 'instruction' },
    )
  }
  if (template === null) return texts
  const instruction = given ?? defaultInstruction
  if (instruction === null && takesInstruction) {
    throw new InvalidInputError(
      `the prompt ${excerpt(JSON.stringify(template))} needs an instruction and there is no default`,
      {
        option: 'instruction',
      },
    )
  }
  return texts.map((text) =>
    template.replace(/\{(text|instruction)\}/g, (_, name) => (name === 'text' ? text : (instruction ?? ''))),
  )
}
