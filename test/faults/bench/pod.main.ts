/**
 * One pod of the fault bench, as a process. Its wall clock is bent before anything of the engine or the driver is loaded,
 * so that nobody in the process knows the true time; what it does is in pod_app.ts.
 */
import type { PodSettings, ToPod } from './pod_settings.js';

const settings = JSON.parse(process.argv[2]!) as PodSettings;
let offset = settings.clock_offset_ms;

const TrueDate = Date;
const trueNow = TrueDate.now.bind(TrueDate);

class BentDate extends TrueDate {
  constructor(...args: []) {
    super(...(args.length === 0 ? ([trueNow() + offset] as unknown as []) : args));
  }
  static override now(): number {
    return trueNow() + offset;
  }
}
if (offset !== 0) globalThis.Date = BentDate as unknown as DateConstructor;

process.on('message', (message: ToPod) => {
  if (message.do !== 'clock') return;
  offset = message.offset_ms;
  globalThis.Date = BentDate as unknown as DateConstructor;
});

try {
  const { runPod } = await import('./pod_app.js');
  await runPod(settings);
} catch (error) {
  // Without this it would live on, held by its channel, and whoever started it would wait for it for ever.
  console.error('did not start:', error);
  process.exit(1);
}
