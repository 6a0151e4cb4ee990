/** Real time, for tests about real servers. Every pod of this machine agrees on it. */
import { DatabaseClock } from '../../src/common/ports/clock.js';

export async function realClock(): Promise<DatabaseClock> {
  const clock = new DatabaseClock(() => Promise.resolve(new Date()));
  await clock.sync();
  return clock;
}
