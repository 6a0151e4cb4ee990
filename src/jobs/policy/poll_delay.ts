/** How long an idle lane waits: longer with every empty check, never beyond the last step. Pure. */
export function idleDelayMs(emptyChecks: number, steps: readonly number[]): number {
  return steps[Math.min(emptyChecks, steps.length - 1)]!;
}
