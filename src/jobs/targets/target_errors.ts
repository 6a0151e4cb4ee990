/** What a handler throws to say more than "it failed" (reference, sections 4 and 5). Any other error is an answered failure. */

/** Nothing reached the target: the target is paused and the row spends no attempt. */
export class TargetUnreachable extends Error {
  constructor(message: string, options?: ErrorOptions & { retry_after_ms?: number }) {
    super(message, options);
    this.name = 'TargetUnreachable';
    this.retry_after_ms = options?.retry_after_ms;
  }
  /** Wish of the target: not before this many milliseconds. */
  readonly retry_after_ms?: number;
}

/** It may have landed. At-most-once rows go DEAD at once; at-least-once rows wait like unreachable ones. */
export class TargetOutcomeUnknown extends Error {
  constructor(message: string, options?: ErrorOptions & { target_up?: boolean }) {
    super(message, options);
    this.name = 'TargetOutcomeUnknown';
    this.target_up = options?.target_up ?? false;
  }
  /** The target itself answered, so an at-most-once row's unknown end is no reason to pause it. */
  readonly target_up: boolean;
}

/**
 * In a batch handler's answer: one answer to several rows, of which nobody knows whom it means. Charges none of them:
 * each runs alone next, and is charged alone.
 */
export class SharedFailure extends Error {
  constructor(override readonly cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.name = 'SharedFailure';
  }
}

/**
 * In a batch handler's answer: not sent by this call because of a row of the same key before it. Runs after that one, at
 * no charge. Of the first row of a key in the batch it counts as an answered failure: that row waits for nobody.
 */
export class JobHeldBack extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'JobHeldBack';
  }
}

/** A resend can never succeed: DEAD at once, whatever the delivery mode. Any error with `dead_now: true` counts as one. */
export class JobRejected extends Error {
  readonly dead_now = true;
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'JobRejected';
  }
}
