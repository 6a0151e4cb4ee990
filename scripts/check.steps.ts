// The quick gate's steps: two at a time, one line each with its seconds, the output only of a step that failed. Every
// step is one of the package's own scripts, so that what the gate says can be repeated by hand.
import { spawn } from 'node:child_process';
import { once } from 'node:events';

const AT_ONCE = 2;

interface Step {
  script: string;
  args?: string[];
}

export async function runScript(script: string, args: string[] = []): Promise<{ passed: boolean; output: string }> {
  const npmArgs = ['run', '--silent', script, ...(args.length > 0 ? ['--', ...args] : [])];
  const child = spawn('npm', npmArgs, { stdio: ['ignore', 'pipe', 'pipe'] });
  const said: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => said.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => said.push(chunk));
  const [code] = (await once(child, 'close')) as [number | null];
  return { passed: code === 0, output: Buffer.concat(said).toString() };
}

/** Tells whether all steps passed. `unitArgs` go to the unit tests. */
export async function runSteps(unitArgs: string[] = []): Promise<boolean> {
  // The longest first, so that the two lanes end at about the same time.
  const waiting: Step[] = [
    { script: 'types' },
    { script: 'test:unit', args: unitArgs },
    { script: 'lint' },
    { script: 'format:check' },
  ];
  let passed = true;
  const lane = async (): Promise<void> => {
    for (let step = waiting.shift(); step !== undefined; step = waiting.shift()) {
      passed = (await runStep(step)) && passed;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
  return passed;
}

async function runStep({ script, args }: Step): Promise<boolean> {
  const began = performance.now();
  const { passed, output } = await runScript(script, args);
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  console.log(`${passed ? 'ok    ' : 'FAILED'} ${script.padEnd(12)} ${seconds.padStart(5)} s`);
  if (!passed) console.log(output.trimEnd());
  return passed;
}
