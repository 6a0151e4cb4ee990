/** A promise with an end. What the work does after its deadline is ignored, also when it fails: never unhandled. */
import { KafkaDeadlineExceeded } from './kafka.errors.js';

export async function withDeadline<T>(what: string, ms: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const passed = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new KafkaDeadlineExceeded(what, ms)), ms);
  });
  try {
    return await Promise.race([work, passed]);
  } finally {
    clearTimeout(timer);
  }
}
