/**
 * Places where a fault test lets the process die, between two steps whose order is a promise. `crashPoint(name)` does
 * nothing unless the environment's `SIDELANE_CRASH_POINT` names it (`after_mark`, or `after_mark:3` for the third
 * passing): then the process kills itself with SIGKILL, so that nothing of it runs any more. Must never throw or wait.
 */
export const CRASH_POINTS = [
  'before_insert',
  'after_insert',
  'before_commit',
  'after_commit',
  'before_hook',
  'after_hook',
  'before_claim',
  'after_claim',
  'before_mark',
  'after_mark',
  'before_send',
  'after_send',
  'before_answer',
  'after_answer',
  'before_outcome',
  'after_outcome',
  'before_release',
  'after_release',
  'before_judge',
  'after_judge',
  'before_slot',
  'after_slot',
] as const;

export type CrashPoint = (typeof CRASH_POINTS)[number];

const [armed, nth = '1'] = (process.env['SIDELANE_CRASH_POINT'] ?? '').split(':');
let left = Number(nth);

export function crashPoint(name: CrashPoint): void {
  if (name === armed && --left === 0) process.kill(process.pid, 'SIGKILL');
}
