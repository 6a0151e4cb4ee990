// Promises: which commands there are, and who answers each. Must never grow logic of its own.
import type { Document } from '../bson.codec.js';
import type { Scope } from '../command.scope.js';
import { adminCommands } from './admin.commands.js';
import { collectionCommands } from './collection.commands.js';
import { cursorCommands } from './cursor.commands.js';
import { explainCommands } from './explain.commands.js';
import { findAndModifyCommands } from './find_and_modify.commands.js';
import { indexCommands } from './index.commands.js';
import { readCommands } from './read.commands.js';
import { sessionCommands } from './session.commands.js';
import { writeCommands } from './write.commands.js';

export type Handler = (scope: Scope) => Promise<Buffer | Document>;

export const COMMANDS: ReadonlyMap<string, Handler> = new Map(
  Object.entries({
    ...adminCommands,
    ...sessionCommands,
    ...readCommands,
    ...cursorCommands,
    ...writeCommands,
    ...findAndModifyCommands,
    ...indexCommands,
    ...collectionCommands,
    ...explainCommands,
  }),
);
