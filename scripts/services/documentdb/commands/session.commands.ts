// Promises: sessions end, and with them what they have open. Commit and abort are answered where sessions are taken in
// turn (dispatcher), not here. Must never wait its turn in a session: a kill is for those that are stuck.
import { sessionKey } from '../bson.codec.js';
import type { Document } from '../bson.codec.js';
import type { Scope } from '../command.scope.js';

const keysIn = (list: unknown): string[] =>
  (Array.isArray(list) ? (list as Document[]) : []).map(sessionKey).filter((key) => key !== undefined);

async function endSessions({ services, command }: Scope): Promise<Document> {
  await services.sessions.end(keysIn(command.body[command.name]));
  return { ok: 1 };
}

export const sessionCommands = {
  endSessions,
  killSessions: async (scope: Scope): Promise<Document> => {
    const named = keysIn(scope.command.body.killSessions);
    if (named.length > 0) return endSessions(scope);
    await scope.services.sessions.endAll(); // an empty list means all, as on MongoDB
    return { ok: 1 };
  },
  killAllSessions: async ({ services }: Scope): Promise<Document> => {
    await services.sessions.endAll();
    return { ok: 1 };
  },
  refreshSessions: ({ services, command }: Scope): Promise<Document> => {
    services.sessions.refresh(keysIn(command.body.refreshSessions));
    return Promise.resolve({ ok: 1 });
  },
  startSession: (): Promise<Document> => Promise.resolve({ timeoutMinutes: 30, ok: 1 }),
};
