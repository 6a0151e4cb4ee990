/**
 * After-commit hooks for a session that somebody else commits (`connection.transaction()`, a manual
 * `startTransaction()`).
 *
 * The driver tells nobody whether a commit succeeded: a session is "committed" even when `commitTransaction` threw.
 * So the three methods that begin and end an attempt are overlaid on this one session: hooks run after a
 * `commitTransaction` that resolved, and are dropped when an attempt is aborted or a new one begins.
 */
import type { ClientSession } from 'mongoose';

export type CommitHook = () => void | Promise<void>;

const observed = new WeakMap<ClientSession, { hooks: CommitHook[] }>();

export function afterCommitOf(
  session: ClientSession,
  hook: CommitHook,
  run: (hooks: CommitHook[]) => Promise<void>,
): void {
  let state = observed.get(session);
  if (!state) {
    state = { hooks: [] };
    observed.set(session, state);
    overlay(session, state, run);
  }
  state.hooks.push(hook);
}

export function hookIsPendingOf(session: ClientSession, hook: CommitHook): boolean {
  return observed.get(session)?.hooks.includes(hook) ?? false;
}

/**
 * Identity of the transaction attempt a session is in; undefined outside of one. The driver makes a new object for each
 * (not in its types; were it gone, attempts of one session would look the same, and an ended one still would not).
 */
export function attemptOf(session: ClientSession): object | undefined {
  return session.inTransaction() ? ((session as { transaction?: object }).transaction ?? session) : undefined;
}

function overlay(
  session: ClientSession,
  state: { hooks: CommitHook[] },
  run: (hooks: CommitHook[]) => Promise<void>,
): void {
  const start = session.startTransaction.bind(session);
  const commit = session.commitTransaction.bind(session);
  const abort = session.abortTransaction.bind(session);
  session.startTransaction = (...args) => {
    state.hooks = [];
    start(...args);
  };
  session.abortTransaction = (...args) => {
    state.hooks = [];
    return abort(...args);
  };
  session.commitTransaction = async (...args) => {
    await commit(...args); // throws when the outcome is unknown; the driver calls again and the hooks run then
    const hooks = state.hooks;
    state.hooks = [];
    await run(hooks);
  };
}
