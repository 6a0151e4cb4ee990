// One Jest run, several projects: `unit` needs no service, `services` tests our stand-in database itself,
// `integration` runs against a real MongoDB protocol, a real Kafka protocol and real processes.
import { fileURLToPath } from 'node:url';

const base = {
  // Absolute, because Jest takes a project's relative root from the folder that it was started in.
  rootDir: fileURLToPath(new URL('..', import.meta.url)),
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      {
        jsc: {
          target: 'es2022',
          parser: { syntax: 'typescript', decorators: true },
          transform: { legacyDecorator: true, decoratorMetadata: true },
          keepClassNames: true,
        },
        module: { type: 'es6' },
        sourceMaps: 'inline',
      },
    ],
  },
};
const withServices = { globalSetup: '<rootDir>/test/support/global_setup.mjs' };
const folders = (...names) => names.map((name) => `<rootDir>/test/${name}/**/*.spec.ts`);

export default {
  testTimeout: 30_000,
  projects: [
    { ...base, displayName: 'unit', testMatch: folders('unit', 'properties') },
    { ...base, ...withServices, displayName: 'services', testMatch: folders('services') },
    {
      ...base,
      ...withServices,
      displayName: 'integration',
      testMatch: folders('store', 'concurrency', 'kafka', 'redis', 'e2e', 'faults'),
    },
  ],
};
