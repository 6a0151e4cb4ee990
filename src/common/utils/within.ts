/** Waits for work that may hang, and never longer than told: what bounds a shutdown. The work itself goes on. */
import type { Clock } from '../ports/clock.js';

/** True when the work settled within `ms`. Rejects as the work does; what it does later is ignored, never unhandled. */
export async function within(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  let cancel = (): void => undefined;
  const late = new Promise<boolean>((resolve) => {
    const timer = clock.after(ms, () => resolve(false));
    cancel = () => timer.cancel();
  });
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    cancel();
  }
}
