/**
 * What a controller of an admin API may take from a request: `@AdminQuery(Dto)`, `@AdminBody(Dto)`, `@AdminParam(name)`.
 *
 * Read from the request as it came, not as the host's query parser or a global pipe left it: a parser may make an
 * operator object of `?status[$ne]=`, and a pipe with implicit conversion a string of that object. Whatever the type does
 * not name is refused with 400, before anything reaches the database.
 */
import { createParamDecorator, type ExecutionContext, type Type } from '@nestjs/common';
import { ApiBody, ApiParam, ApiQuery, type ApiParamOptions } from '@nestjs/swagger';
import { plainToInstance } from 'class-transformer';
import { validateSync, type ValidationError } from 'class-validator';
import { adminError, notFound, type AdminError } from './admin_error.js';
import { isPlainText, MAX_TEXT_CHARS } from './admin_fields.js';

interface RawRequest {
  url?: string;
  originalUrl?: string;
  body?: unknown;
  params?: Record<string, unknown>;
}

/** Bodies of admin requests are flat: deeper ones are nobody's, and walking them would cost. */
const MAX_DEPTH = 8;
const FORBIDDEN_NAMES = new Set(['__proto__', 'constructor', 'prototype']);

const requestOf = (context: ExecutionContext): RawRequest => context.switchToHttp().getRequest<RawRequest>();

const Query = createParamDecorator((dto: Type<object>, context: ExecutionContext): object => {
  const { originalUrl, url } = requestOf(context);
  return validated(dto, readQuery(originalUrl ?? url ?? ''));
});

const Body = createParamDecorator((dto: Type<object>, context: ExecutionContext): object => {
  const { originalUrl, url, body } = requestOf(context);
  // `?dry_run=true` beside a body would be overlooked, and what was to be counted be changed.
  const names = Object.keys(readQuery(originalUrl ?? url ?? ''));
  if (names.length > 0) throw invalid(names.map((name) => `${name}: expected in the body, not in the query`));
  return validated(dto, readBody(body));
});

export interface AdminParamRule {
  /** What the value must look like; one that does not names nothing: 404. Default: any plain text. */
  readonly pattern?: RegExp;
  /** Longest value, in characters. Default 500. */
  readonly max_chars?: number;
  readonly description?: string;
  readonly example?: string;
}

const Param = createParamDecorator(
  ({ name, rule }: { name: string; rule: AdminParamRule }, context: ExecutionContext): string => {
    const value = requestOf(context).params?.[name];
    if (isPlainText(value, rule.max_chars ?? MAX_TEXT_CHARS) && (rule.pattern?.test(value) ?? true)) return value;
    throw notFound(`${name}: nothing is called that`);
  },
);

/** The query string as an instance of `dto`. 400 `invalid_input` for what it does not name, twice the same name, or a bad value. */
export function AdminQuery(dto: Type<object>): ParameterDecorator {
  return described(Query(dto), ApiQuery({ type: dto }));
}

/** The JSON body as an instance of `dto`; no body counts as `{}`. 400 as for the query, and for any query beside it. */
export function AdminBody(dto: Type<object>): ParameterDecorator {
  return described(Body(dto), ApiBody({ type: dto }));
}

/** One part of the path, decoded. What cannot be the name of anything is 404 `not_found`, without asking the database. */
export function AdminParam(name: string, rule: AdminParamRule = {}): ParameterDecorator {
  const options: ApiParamOptions = {
    name,
    type: String,
    ...(rule.description !== undefined && { description: rule.description }),
    ...(rule.example !== undefined && { example: rule.example }),
  };
  return described(Param({ name, rule }), ApiParam(options));
}

/** Input and its description in one place, so that no route takes what its OpenAPI document does not say. */
function described(read: ParameterDecorator, describe: MethodDecorator): ParameterDecorator {
  return (target, key, index) => {
    read(target, key, index);
    if (key !== undefined) describe(target, key, Object.getOwnPropertyDescriptor(target, key)!);
  };
}

function readQuery(url: string): Record<string, unknown> {
  const start = url.indexOf('?');
  const values = Object.create(null) as Record<string, unknown>;
  if (start < 0) return values;
  for (const [name, value] of new URLSearchParams(url.slice(start + 1))) {
    if (name in values) throw invalid([`${name}: expected once`]);
    values[name] = value;
  }
  return values;
}

function readBody(body: unknown): Record<string, unknown> {
  if (body === undefined) return {};
  if (typeof body !== 'object' || body === null || Array.isArray(body)) throw invalid(['body: expected an object']);
  return body as Record<string, unknown>;
}

function validated(dto: Type<object>, plain: Record<string, unknown>): object {
  checkNames(plain, 0);
  const instance = plainToInstance(dto, plain);
  const errors = validateSync(instance, {
    whitelist: true,
    forbidNonWhitelisted: true,
    forbidUnknownValues: true,
    validationError: { target: false, value: false },
  });
  if (errors.length > 0) throw invalid(errors.flatMap((error) => messagesOf(error, '')));
  return instance;
}

/**
 * The transformer drops these names silently, and optional fields would let `null` pass: who sends such a thing is to be
 * told, instead of having a filter that means something else.
 */
function checkNames(value: object, depth: number): void {
  if (depth > MAX_DEPTH) throw invalid([`body: expected at most ${MAX_DEPTH} levels`]);
  for (const [name, inner] of Object.entries(value) as [string, unknown][]) {
    if (FORBIDDEN_NAMES.has(name)) throw invalid([`${name}: not a name of this request`]);
    if (inner === null) throw invalid([`${name}: expected a value; leave it out where there is none`]);
    if (typeof inner === 'object') checkNames(inner, depth + 1);
  }
}

function messagesOf(error: ValidationError, path: string): string[] {
  const own = Object.values(error.constraints ?? {}).map((text) => (path ? `${path}${text}` : text));
  const below = (error.children ?? []).flatMap((child) => messagesOf(child, `${path}${error.property}.`));
  return [...own, ...below];
}

function invalid(messages: readonly string[]): AdminError {
  return adminError(400, 'invalid_input', messages);
}
