import { v4, v7 } from 'uuid';

/** Where identifiers come from; injected so that a test can name them. */
export interface IdSource {
  /** A fence: unguessable, never repeated. */
  token(): string;
  /** A key that sorts by time, so that its unique index grows at one end instead of all over. */
  sortable(): string;
}

export const ID_SOURCE = Symbol('sidelane.ids');

export const systemIds: IdSource = { token: () => v4(), sortable: () => v7() };
