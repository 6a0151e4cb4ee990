// `npm test`: everything there is. The quick gate, the services, the build (one suite imports the built package as a
// user would), then the suites that need services. Arguments go to Jest: `npm test -- -t name`. The last line counts
// the tests; the exit code is zero only when every step and every test passed and at least one test ran.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runScript, runSteps } from './check.steps.js';
import { SERVICE_NAMES } from './services/services.catalog.js';
import { asEnvironment, ServiceMissingError, up } from './services/services.js';

const JEST = [
  '--experimental-vm-modules',
  '--no-warnings',
  'node_modules/jest/bin/jest.js',
  '-c',
  'test/jest.config.mjs',
];
// A handle that a failed test left open must not keep the run, and with it a build server, waiting for ever.
const SUITES = ['--selectProjects', 'services', 'integration', '--maxWorkers=2', '--forceExit'];

interface Report {
  numPassedTests: number;
  numFailedTests: number;
  /** Suites that could not even be loaded have no tests to count. */
  numRuntimeErrorTestSuites: number;
}

function readReport(file: string): { passed: number; failed: number } {
  try {
    const report = JSON.parse(readFileSync(file, 'utf8')) as Report;
    return { passed: report.numPassedTests, failed: report.numFailedTests + report.numRuntimeErrorTestSuites };
  } catch {
    return { passed: 0, failed: 1 };
  }
}

async function build(): Promise<boolean> {
  const { passed, output } = await runScript('build');
  console.log(passed ? 'ok     build' : `FAILED build\n${output}`);
  return passed;
}

async function runSuites(args: string[], report: string, environment: Record<string, string>): Promise<boolean> {
  const child = spawn(process.execPath, [...JEST, ...SUITES, ...reportTo(report), ...args], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, ...environment },
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return code === 0;
}

const reportTo = (file: string): string[] => ['--passWithNoTests', '--json', `--outputFile=${file}`];

async function runAll(args: string[], folder: string): Promise<boolean> {
  const reports = [join(folder, 'unit.json'), join(folder, 'suites.json')] as const;
  const checked = await runSteps([...reportTo(reports[0]), ...args]);
  const environment = asEnvironment(await up(SERVICE_NAMES, console.log));
  const built = await build();
  const suites = await runSuites(args, reports[1], environment);
  const [unit, rest] = reports.map(readReport) as [ReturnType<typeof readReport>, ReturnType<typeof readReport>];
  const passed = unit.passed + rest.passed;
  // A failed step that is no test still has to show in the last line.
  const failed = Math.max(unit.failed + rest.failed, checked && built && suites ? 0 : 1);
  console.log(`${passed} passed, ${failed} failed`);
  return failed === 0 && passed > 0;
}

const folder = mkdtempSync(join(tmpdir(), 'sidelane-test-'));
try {
  process.exitCode = (await runAll(process.argv.slice(2), folder)) ? 0 : 1;
} catch (error) {
  console.error(error instanceof ServiceMissingError ? error.message : error);
  console.log('0 passed, 1 failed');
  process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
