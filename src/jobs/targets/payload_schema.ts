/**
 * Payload schemas (design, section 4): what a target declares about its payloads, checked at enqueue before anything is
 * written, and known to the caller's compiler through `defineTarget`.
 *
 * A schema judges and changes nothing: it sees the JSON value that is about to be stored, and that value is stored as the
 * caller sent it. Defaults, transforms and coercions of a schema therefore never reach a handler; the payload's type is
 * the schema's input. No validation library is named here but the one for classes: zod and its like are known by shape.
 */
import { plainToInstance } from 'class-transformer';
import { getMetadataStorage, validateSync, type ValidationError } from 'class-validator';
import { errorText, InvalidInputError, SidelaneError } from '../../common/errors.js';
import type { JsonValue } from '../jobs.types.js';

/** A class whose properties carry class-validator decorators; `@Type` of class-transformer leads into nested ones. */
export type PayloadClass<Payload = unknown> = new (...args: never[]) => Payload;

/** zod and others: answers `success`, or an `error` with its issues. */
export interface SafeParseSchema {
  safeParse(value: unknown): unknown;
}

/** The Standard Schema interface: zod, valibot, arktype and others. */
export interface StandardSchema<Payload = unknown> {
  readonly '~standard': {
    readonly validate: (value: unknown) => unknown;
    readonly types?: { readonly input: Payload } | undefined;
  };
}

/** Synchronous only: an enqueue must not wait for anything but its database. */
export type PayloadSchema = PayloadClass | StandardSchema | SafeParseSchema;

/** What a caller may send: the input of a schema, the instance of a class. */
export type SchemaInput<Schema> = Schema extends StandardSchema
  ? NonNullable<Schema['~standard']['types']>['input']
  : Schema extends PayloadClass<infer Payload>
    ? Payload
    : unknown;

/** What is wrong with one place of a payload. */
interface Issue {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/** Issues that one error names; the rest is counted. */
const MAX_ISSUES = 5;

/** What is wrong with a declared schema, in words; nothing when it can be used. */
export function payloadSchemaFault(schema: unknown): string | undefined {
  if (isSafeParse(schema) || isStandard(schema)) return undefined;
  if (typeof schema !== 'function' || typeof schema.prototype !== 'object') {
    return 'expected a class with class-validator decorators, or a schema with safeParse() or "~standard"';
  }
  if (constraintsOf(schema).length === 0) return `class ${schema.name} has no class-validator decorators`;
  return asyncFault(schema);
}

/**
 * Throws `invalid_payload` with the path of the first fault, or `schema_failed` when the schema could not judge: it threw,
 * or it is asynchronous. `payload` is the value to be stored; it is not changed.
 */
export function checkPayload(target: string, schema: PayloadSchema, payload: JsonValue, field: string): void {
  const issues = judge(target, schema, payload, field);
  if (issues.length === 0) return;
  const places = issues.map(({ path, message }) => `${field}${pathText(path)}: ${message}`);
  const more = issues.length > MAX_ISSUES ? ` (and ${issues.length - MAX_ISSUES} more)` : '';
  // No cause: the libraries' own errors carry the payload, which would then stand in the host's logs.
  throw new InvalidInputError(
    'invalid_payload',
    `${places.slice(0, MAX_ISSUES).join('; ')}${more} (schema of target ${target})`,
    `${field}${pathText(issues[0]!.path)}`,
  );
}

function judge(target: string, schema: PayloadSchema, payload: JsonValue, field: string): Issue[] {
  try {
    // Libraries may write into what they check; the value to be stored must not change under it.
    const copy = structuredClone(payload);
    // safeParse first: zod's "~standard" would start an asynchronous schema over again instead of refusing it.
    if (isSafeParse(schema)) return parseIssues(synchronous(schema.safeParse(copy)));
    if (isStandard(schema)) return standardIssues(synchronous(schema['~standard'].validate(copy)));
    return classIssues(schema, copy);
  } catch (error) {
    const message = `${field}: the schema of target ${target} failed (it must be synchronous and must not throw): ${errorText(error)}`;
    throw new SidelaneError('schema_failed', message, field, { cause: error });
  }
}

function synchronous(answer: unknown): unknown {
  if (typeof (answer as PromiseLike<unknown> | undefined)?.then !== 'function') return answer;
  // Its late failure is nobody's any more: unhandled, it would end the process.
  (answer as PromiseLike<unknown>).then(undefined, () => undefined);
  throw new Error('it answered with a promise');
}

function parseIssues(answer: unknown): Issue[] {
  const { success, error } = answer as { success: boolean; error?: { issues?: unknown; message?: string } };
  return success ? [] : readIssues(error?.issues, error?.message);
}

function standardIssues(answer: unknown): Issue[] {
  const { issues } = answer as { issues?: unknown };
  return issues === undefined ? [] : readIssues(issues);
}

/** Steps of a path are keys, or objects with a key. A refusal without an issue is a refusal all the same. */
function readIssues(issues: unknown, fallback = 'refused'): Issue[] {
  const list = Array.isArray(issues) ? (issues as { message?: string; path?: unknown[] }[]) : [];
  const read = list.map(({ message = fallback, path = [] }) => ({ message, path: path.map(pathStep) }));
  return read.length > 0 ? read : [{ message: fallback, path: [] }];
}

function pathStep(step: unknown): string | number {
  const key = typeof step === 'object' && step !== null ? (step as { key: unknown }).key : step;
  return typeof key === 'number' ? key : String(key);
}

function pathText(path: readonly (string | number)[]): string {
  return path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('');
}

function classIssues(schema: PayloadClass, payload: JsonValue): Issue[] {
  if (typeof payload !== 'object' || payload === null || Array.isArray(payload)) {
    return [{ path: [], message: `expected an object (${schema.name})` }];
  }
  const path = findConstructor(payload, []);
  if (path) return [{ path, message: 'a value with this name cannot be checked by a class' }];
  const instance = plainToInstance(schema, payload) as object;
  refuseAsyncClasses(instance);
  return flatten(validateSync(instance, { forbidUnknownValues: true }), []);
}

/** The libraries ask values for their class by this very name, so a payload must not answer for itself. */
function findConstructor(value: JsonValue, path: readonly (string | number)[]): (string | number)[] | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (Object.hasOwn(value, 'constructor')) return [...path, 'constructor'];
  for (const [key, item] of Object.entries(value)) {
    const found = findConstructor(item, [...path, Array.isArray(value) ? Number(key) : key]);
    if (found) return found;
  }
  return undefined;
}

function flatten(errors: readonly ValidationError[], parents: readonly (string | number)[]): Issue[] {
  return errors.flatMap(({ property, target, constraints = {}, children = [] }) => {
    // The error of a value that is unknown as a whole has no property of its own.
    const own = property === undefined ? [] : [Array.isArray(target) ? Number(property) : property];
    const path = [...parents, ...own];
    return [...Object.values(constraints).map((message) => ({ path, message })), ...flatten(children, path)];
  });
}

/** The validator leaves out asynchronous rules without a word when it runs synchronously: the payload would pass unseen. */
function refuseAsyncClasses(value: unknown): void {
  if (typeof value !== 'object' || value === null) return;
  const fault = asyncFault(value.constructor);
  if (fault) throw new Error(fault);
  for (const item of Object.values(value)) refuseAsyncClasses(item);
}

function asyncFault(schema: Function): string | undefined {
  const slow = constraintsOf(schema).find(({ constraintCls }) =>
    getMetadataStorage()
      .getTargetValidatorConstraints(constraintCls)
      .some((constraint) => constraint.async || isAsyncFunction(constraint.instance.validate)),
  );
  return slow && `class ${schema.name}: the rule on ${slow.propertyName} is asynchronous`;
}

function constraintsOf(schema: Function): { constraintCls: Function; propertyName: string }[] {
  return getMetadataStorage().getTargetValidationMetadatas(schema, '', true, false);
}

function isAsyncFunction(value: unknown): boolean {
  return Object.prototype.toString.call(value) === '[object AsyncFunction]';
}

function isSafeParse(schema: unknown): schema is SafeParseSchema {
  return typeof (schema as SafeParseSchema | null | undefined)?.safeParse === 'function';
}

function isStandard(schema: unknown): schema is StandardSchema {
  return typeof (schema as StandardSchema | null | undefined)?.['~standard']?.validate === 'function';
}
