/** The OpenAPI document of the admin API: every route that is served is described, with parameters, answers and examples. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { DocumentBuilder, SwaggerModule, type OpenAPIObject } from '@nestjs/swagger';
import { AdminApp } from '../support/admin_app.js';
import { TestDatabase } from '../support/pod.js';

type Operation = NonNullable<OpenAPIObject['paths'][string]['get']>;
interface Answer {
  description: string;
  content?: Record<string, { schema?: object; example?: unknown; examples?: object }>;
}
interface Parameter {
  name: string;
  in: string;
  schema?: { example?: unknown; maximum?: number };
  example?: unknown;
}

const database = new TestDatabase();
let admin: AdminApp;
let document: OpenAPIObject;

const served = (): string[] => {
  const { router } = admin.app.getHttpAdapter().getInstance() as {
    router: { stack: { route?: { path: string; methods: Record<string, boolean> } }[] };
  };
  return router.stack.flatMap(({ route }) =>
    route ? Object.keys(route.methods).map((method) => `${method} ${route.path.replace(/:(\w+)/g, '{$1}')}`) : [],
  );
};
const described = (): [string, Operation][] =>
  Object.entries(document.paths).flatMap(([path, item]) =>
    (['get', 'post', 'put', 'delete'] as const).flatMap((method): [string, Operation][] => {
      const operation = item[method];
      return operation ? [[`${method} ${path}`, operation]] : [];
    }),
  );
const of = (route: string): Operation => described().find(([name]) => name === route)![1];

beforeAll(async () => {
  admin = await AdminApp.start(database);
  document = SwaggerModule.createDocument(admin.app, new DocumentBuilder().setTitle('Admin').setVersion('1').build());
});
afterAll(async () => {
  await admin?.close();
  await database.drop();
});

it('has exactly the routes that are served', () => {
  expect(
    described()
      .map(([name]) => name)
      .sort(),
  ).toEqual(served().sort());
});

describe('every route', () => {
  it('has a summary, a tag, and its answers: success, 400 and 403, each with an example', () => {
    for (const [route, operation] of described()) {
      const answers = operation.responses as Record<string, Answer>;
      expect({ route, summary: operation.summary, tags: operation.tags?.length }).toEqual({
        route,
        summary: expect.stringMatching(/\w{3}/),
        tags: 1,
      });
      expect(Object.keys(answers)).toEqual(expect.arrayContaining(['200', '400', '403']));
      expect(Object.keys(answers)).not.toContain('201');
      for (const [status, answer] of Object.entries(answers)) {
        const content = answer.content?.['application/json'];
        const shown = content?.example ?? content?.examples;
        expect({ route, status, shown: shown !== undefined }).toEqual({ route, status, shown: true });
      }
    }
  });

  it('that names one thing says what 404 means, and one that changes it what 409 means', () => {
    for (const [route, { responses }] of described().filter(([name]) => name.includes('{'))) {
      const statuses = Object.keys(responses);
      expect({ route, statuses }).toEqual({ route, statuses: expect.arrayContaining(['404']) });
      if (route.startsWith('post'))
        expect({ route, statuses }).toEqual({ route, statuses: expect.arrayContaining(['409']) });
    }
  });

  it('describes its path parameters, and a change its body', () => {
    for (const [route, operation] of described()) {
      const inPath = (operation.parameters as Parameter[]).filter((parameter) => parameter.in === 'path');
      expect(inPath.map(({ name }) => `{${name}}`)).toEqual(route.match(/\{\w+\}/g) ?? []);
      if (route.startsWith('post'))
        expect({ route, body: operation.requestBody }).toEqual({ route, body: expect.any(Object) });
    }
  });
});

it('describes what a list may be narrowed by, with bounds and examples', () => {
  const parameters = of('get /api/v1/jobs').parameters as Parameter[];
  expect(parameters.map(({ name }) => name).sort()).toEqual([
    'code',
    'cursor',
    'key',
    'limit',
    'page',
    'status',
    'target',
  ]);
  for (const parameter of parameters) {
    const example = parameter.example ?? parameter.schema?.example;
    expect({ name: parameter.name, shown: example !== undefined || parameter.name === 'status' }).toEqual({
      name: parameter.name,
      shown: true,
    });
  }
  expect(parameters.find(({ name }) => name === 'limit')?.schema).toMatchObject({
    minimum: 1,
    maximum: 100,
    default: 100,
  });
});

it('says that running jobs are cancelled with 202', () => {
  expect(Object.keys(of('post /api/v1/jobs/{id}/cancel').responses)).toContain('202');
});

it('shows payloads nowhere but on the detail route', () => {
  const schemas = document.components?.schemas as Record<string, { properties?: Record<string, unknown> }>;
  const withPayload = Object.entries(schemas).filter(
    ([, schema]) => schema.properties && 'payload' in schema.properties,
  );
  expect(withPayload.map(([name]) => name)).toEqual(['JobDetailDto']);
});
