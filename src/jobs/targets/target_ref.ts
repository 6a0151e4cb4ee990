/**
 * Target names that know their payload's type: `sideEffect.enqueue(ref, payload)` is checked by the compiler, and one
 * declaration serves both the callers and `@JobTarget(ref)`, so the two cannot drift apart.
 */
import type { JobTargetDeclaration } from './job_target.decorator.js';
import type { PayloadSchema, SchemaInput } from './payload_schema.js';

declare const PAYLOAD: unique symbol;

/** Only its name exists at run time. */
export interface JobTargetRef<Payload = unknown> {
  readonly name: string;
  readonly [PAYLOAD]?: Payload;
}

/** What one may send to a target: `PayloadOf<typeof orderPlaced>`. */
export type PayloadOf<Ref extends JobTargetRef> = Ref extends JobTargetRef<infer Payload> ? Payload : never;

/** A declaration for `@JobTarget(...)` or `registry.register({ ...declaration, handler })`, and a typed reference. */
export type DefinedTarget<Payload> = JobTargetDeclaration & JobTargetRef<Payload>;

type Rules = Omit<JobTargetDeclaration, 'name' | 'schema'>;

/** The payload's type is the schema's input, or the instance of the class; the schema is checked at every enqueue. */
export function defineTarget<const Schema extends PayloadSchema>(
  name: string,
  rules: Rules & { schema: Schema },
): DefinedTarget<SchemaInput<Schema>>;
/** A type for a target that is declared elsewhere, or has no schema: known to the compiler, checked by nobody. */
export function defineTarget<Payload>(name: string): JobTargetRef<Payload>;
export function defineTarget(name: string, rules?: Rules & { schema: PayloadSchema }): JobTargetRef {
  return { ...rules, name };
}
