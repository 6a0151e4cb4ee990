// `npm run check`: the quick gate. One line per step with its seconds; the output of a step only when it failed.
import { runSteps } from './check.steps.js';

process.exitCode = (await runSteps()) ? 0 : 1;
