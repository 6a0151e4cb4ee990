/**
 * An abort controller that is built when somebody looks at its signal: most handlers never do, and building one costs
 * more than the rest of a short run's bookkeeping.
 */
export class LazyAbort {
  private controller: AbortController | undefined;
  private called: { reason: unknown } | undefined;

  get signal(): AbortSignal {
    if (!this.controller) {
      this.controller = new AbortController();
      if (this.called) this.controller.abort(this.called.reason);
    }
    return this.controller.signal;
  }

  /** Of the first call; undefined before. */
  get reason(): unknown {
    return this.called?.reason;
  }

  /** The first call decides. */
  abort(reason: unknown): void {
    if (this.called) return;
    this.called = { reason };
    this.controller?.abort(reason);
  }
}
