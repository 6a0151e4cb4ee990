/** What a schema may be, what it answers, and what the compiler makes of it. */
import 'reflect-metadata';
import { describe, expect, it } from '@jest/globals';
import { Type } from 'class-transformer';
import {
  IsInt,
  IsOptional,
  IsString,
  Validate,
  ValidateNested,
  ValidatorConstraint,
  type ValidatorConstraintInterface,
} from 'class-validator';
import { z } from 'zod';
import { InvalidInputError, type SidelaneError } from '../../src/common/errors.js';
import { resolveJobsOptions } from '../../src/jobs/jobs.options.js';
import type { JsonValue } from '../../src/jobs/jobs.types.js';
import type { SideEffectService } from '../../src/jobs/side_effect.service.js';
import { JobTargetsRegistry } from '../../src/jobs/targets/job_targets.registry.js';
import { checkPayload, type PayloadSchema } from '../../src/jobs/targets/payload_schema.js';
import { defineTarget, type PayloadOf } from '../../src/jobs/targets/target_ref.js';

class Customer {
  @IsString() id: string;
}

class Line {
  @IsInt() qty: number;
}

class Order {
  @ValidateNested() @Type(() => Customer) customer: Customer;
  @ValidateNested({ each: true }) @Type(() => Line) lines: Line[];
  @IsOptional() @IsString() note?: string;
}

@ValidatorConstraint({ async: true })
class AskSomebody implements ValidatorConstraintInterface {
  validate(): Promise<boolean> {
    return Promise.resolve(false);
  }
}

@ValidatorConstraint()
class AskQuietly implements ValidatorConstraintInterface {
  async validate(): Promise<boolean> {
    await Promise.resolve();
    return false;
  }
}

class Slow {
  @Validate(AskSomebody) name: string;
}

class Quiet {
  @Validate(AskQuietly) name: string;
}

class SlowInside {
  @IsString() title: string;
  @ValidateNested() @Type(() => Slow) slow: Slow;
}

class Bare {
  id: string;
}

const zodOrder = z.object({
  customer: z.object({ id: z.string() }),
  lines: z.array(z.object({ qty: z.int() })),
  note: z.string().optional(),
});

/** Only the standard's own property, as other libraries have it. */
const standardOrder = { '~standard': zodOrder['~standard'] };

function refusal(schema: PayloadSchema, payload: JsonValue): SidelaneError | undefined {
  try {
    checkPayload('t:x', schema, payload, 'items[0].payload');
    return undefined;
  } catch (error) {
    return error as SidelaneError;
  }
}

const GOOD: JsonValue = { customer: { id: 'c' }, lines: [{ qty: 1 }] };
const SCHEMAS: [string, PayloadSchema][] = [
  ['a class', Order],
  ['zod', zodOrder],
  ['a standard schema', standardOrder],
];

describe.each(SCHEMAS)('%s as a payload schema', (_, schema) => {
  it('lets a fitting payload pass, with what it does not know', () => {
    expect(refusal(schema, GOOD)).toBeUndefined();
    expect(refusal(schema, { ...(GOOD as object), more: [1] })).toBeUndefined();
  });

  it.each<[string, JsonValue, string]>([
    ['a nested value', { customer: { id: 7 }, lines: [] }, 'items[0].payload.customer.id'],
    [
      'an item of a list',
      { customer: { id: 'c' }, lines: [{ qty: 1 }, { qty: 'x' }] },
      'items[0].payload.lines[1].qty',
    ],
    ['a property', { ...(GOOD as object), note: 1 }, 'items[0].payload.note'],
    ['a text in place of an object', 'x', 'items[0].payload'],
    ['a list in place of an object', [GOOD], 'items[0].payload'],
    ['nothing in place of an object', null, 'items[0].payload'],
  ])('refuses %s with its path', (_case, payload, field) => {
    const error = refusal(schema, payload);
    expect(error).toBeInstanceOf(InvalidInputError);
    expect(error).toMatchObject({ code: 'invalid_payload', field });
    expect(error?.message).toContain(`${field}: `);
    expect(error?.message).toContain('t:x');
  });

  it('names every place, and counts those beyond five', () => {
    const lines = Array.from({ length: 7 }, () => ({ qty: 'x' }));
    const message = refusal(schema, { customer: { id: 'c' }, lines })!.message;
    expect(message.match(/lines\[\d\]/g)).toHaveLength(5);
    expect(message).toContain('(and 2 more)');
  });

  it('keeps the payload out of the error, its cause included', () => {
    const error = refusal(schema, { customer: { id: 7, secret: 'tell nobody' }, lines: [] });
    expect(error?.cause).toBeUndefined();
    expect(error?.message).not.toContain('tell nobody');
  });
});

describe('a class', () => {
  it.each<[JsonValue, string]>([
    [{ ...(GOOD as object), constructor: 'Line' }, '.constructor'],
    [{ ...(GOOD as object), more: [{ constructor: { name: 'Line' } }] }, '.more[0].constructor'],
  ])('is not talked round by a payload that names its own class: %#', (payload, path) => {
    expect(refusal(Order, payload)).toMatchObject({ code: 'invalid_payload', field: `items[0].payload${path}` });
  });
});

describe('a schema that cannot judge', () => {
  const late = z.string().refine(async () => Promise.resolve(false));
  it.each<[string, PayloadSchema, JsonValue]>([
    ['zod with an asynchronous refinement', late, 'x'],
    ['a standard schema that answers with a promise', { '~standard': late['~standard'] }, 'x'],
    ['a safeParse that answers with a promise', { safeParse: () => Promise.resolve({ success: true }) }, 'x'],
    ['a promise that fails later', { safeParse: () => Promise.reject(new Error('late')) }, 'x'],
    ['a schema that throws', { safeParse: () => { throw new Error('broken'); } }, 'x'], // prettier-ignore
    ['a class with an asynchronous rule inside', SlowInside, { title: 't', slow: { name: 'n' } }],
  ])('%s fails the enqueue, and is never taken for a yes', async (_, schema, payload) => {
    expect(refusal(schema, payload)).toMatchObject({ code: 'schema_failed', field: 'items[0].payload' });
    await new Promise(setImmediate); // an unhandled rejection would end this process here
  });
});

describe('a schema and the value', () => {
  it('that throws says so itself, and is asked once', () => {
    let asked = 0;
    const schema = z.string().refine(() => {
      asked++;
      throw new Error('broken');
    });
    expect(refusal(schema, 'x')?.message).toContain('broken');
    expect(asked).toBe(1);
  });

  it('that writes into what it checks does not change what is stored', () => {
    const payload = { a: 1 };
    const meddler: PayloadSchema = {
      safeParse: (value) => {
        (value as { a: number }).a = 2;
        return { success: true };
      },
    };
    checkPayload('t:x', meddler, payload, 'payload');
    expect(payload).toEqual({ a: 1 });
  });

  it('that refuses without a word refuses all the same', () => {
    expect(refusal({ safeParse: () => ({ success: false }) }, 1)).toMatchObject({ code: 'invalid_payload' });
    expect(refusal({ '~standard': { validate: () => ({ issues: [] }) } }, 1)).toMatchObject({
      code: 'invalid_payload',
    });
  });

  it('path steps may be objects with a key', () => {
    const schema = {
      '~standard': { validate: () => ({ issues: [{ message: 'no', path: [{ key: 'a' }, { key: 3 }] }] }) },
    };
    expect(refusal(schema, {})).toMatchObject({ field: 'items[0].payload.a[3]' });
  });
});

describe('the declaration of a schema', () => {
  const register = (schema: unknown): void =>
    new JobTargetsRegistry(resolveJobsOptions({}, {})).register({
      name: 't:x',
      lane: 'fast',
      schema: schema as PayloadSchema,
      handler: () => Promise.resolve(),
    });

  it.each([...SCHEMAS.map(([, schema]) => schema), { safeParse: () => ({ success: true }) }])(
    'is taken: %#',
    (schema) => expect(() => register(schema)).not.toThrow(),
  );

  it.each<[string, unknown, RegExp]>([
    ['a class without decorators', Bare, /class Bare has no class-validator decorators/],
    ['a class with an asynchronous rule', Slow, /the rule on name is asynchronous/],
    ['a rule that is asynchronous without saying so', Quiet, /the rule on name is asynchronous/],
    ['an arrow function', () => true, /expected a class/],
    ['an object', {}, /expected a class/],
    ['null', null, /expected a class/],
    ['a text', 'Order', /expected a class/],
  ])('is refused: %s', (_, schema, message) => {
    expect(() => register(schema)).toThrow(
      expect.objectContaining({ code: 'invalid_target', field: 'schema', message: expect.stringMatching(message) }),
    );
  });
});

/** Never run: `npm run types` compiles it, and each line that must not compile says so. */
export async function types(sideEffect: SideEffectService): Promise<void> {
  const byZod = defineTarget('t:zod', { lane: 'fast', schema: zodOrder });
  const byClass = defineTarget('t:class', { lane: 'long', schema: Order });
  const byStandard = defineTarget('t:standard', { lane: 'fast', schema: standardOrder });
  const byType = defineTarget<{ a: number }>('t:type');
  const defaults = defineTarget('t:defaults', {
    lane: 'fast',
    schema: z.object({ count: z.number().default(1), at: z.string().transform(Number) }),
  });
  const order = { customer: { id: 'c' }, lines: [{ qty: 1 }] };

  for (const ref of [byZod, byStandard]) await sideEffect.enqueue(ref, order, { key: 'k' }, null);
  await sideEffect.enqueue(byClass, order);
  await sideEffect.enqueue(byType, { a: 1 });
  await sideEffect.enqueue('plain', { anything: [1, 'x'] });
  await sideEffect.enqueue('plain', 1 as unknown);
  // A handler sees what was sent: the input of the schema, not what its transforms would make of it.
  await sideEffect.enqueue(defaults, { at: '1' });
  const sent: PayloadOf<typeof defaults> = { count: undefined, at: '2' };
  await sideEffect.enqueue(defaults, sent);

  // @ts-expect-error the id is a text
  await sideEffect.enqueue(byZod, { customer: { id: 7 }, lines: [] });
  // @ts-expect-error the lines are missing
  await sideEffect.enqueue(byClass, { customer: { id: 'c' } });
  // @ts-expect-error qty is a number
  await sideEffect.enqueue(byStandard, { customer: { id: 'c' }, lines: [{ qty: '1' }] });
  // @ts-expect-error a is a number
  await sideEffect.enqueue(byType, { a: 'x' });
  // @ts-expect-error the output of the transform is not what is sent
  await sideEffect.enqueue(defaults, { at: 1 });

  await sideEffect.enqueueMany([
    { target: byZod, payload: order },
    { target: byType, payload: { a: 1 }, key: 'k' },
    { target: 'plain', payload: 1 },
  ]);
  await sideEffect.enqueueMany([1, 2].map((a) => ({ target: byType, payload: { a }, version: a })));
  await sideEffect.enqueueMany([1, 2].map((a) => ({ target: 'plain', payload: a })));
  await sideEffect.enqueueMany([
    { target: byZod, payload: order },
    // @ts-expect-error one wrong payload among others
    { target: byType, payload: { a: 'x' } },
  ]);
  // @ts-expect-error a list of wrong payloads
  await sideEffect.enqueueMany([1, 2].map((a) => ({ target: byType, payload: { a: String(a) } })));
  // @ts-expect-error a target has a lane
  defineTarget('t:y', { schema: zodOrder });
  // @ts-expect-error neither a class nor a schema
  defineTarget('t:y', { lane: 'fast', schema: { parse: () => 1 } });
}
