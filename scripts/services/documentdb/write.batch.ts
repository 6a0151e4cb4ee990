// Promises: a batch of writes of which some met a conflict is brought to its end by running those again, and only those;
// the answer is the sum, with places as in the whole batch. Must never lose or repeat an operation: an ordered batch goes
// on where it stopped, an unordered one repeats only what failed.
import { decode, decodeExactly, encode, splitSequence } from './bson.codec.js';
import type { Document } from './bson.codec.js';
import { backOff } from './command.scope.js';
import type { Command } from './command.scope.js';
import { Code, CommandError } from './errors.js';

const MAX_ROUNDS = 1_000;

interface Failure {
  index: number;
  code: number;
  errmsg: string;
}
interface Upserted {
  index: number;
}
type Run = (bytes: Buffer, sequence: Buffer) => Promise<Document>;

export class WriteBatch {
  #operations?: Buffer[];

  constructor(
    private readonly command: Command,
    private readonly field: string,
    private readonly isConflict: (code: number) => boolean,
  ) {}

  operation(index: number): Document | undefined {
    const bytes = this.#all()[index];
    return bytes && decode(bytes);
  }

  async settle(first: Document, run: Run): Promise<Document> {
    const total: Document = { ...first, n: 0, upserted: [], writeErrors: [] };
    if ('nModified' in first) total.nModified = 0;
    let places: number[] | undefined;
    let reply = first;
    for (let round = 0; ; round++) {
      const again = this.#add(total, reply, (index) => places?.[index] ?? index, places?.length);
      if (again.length === 0) return finished(total);
      if (round >= MAX_ROUNDS || !this.command.connection.open) {
        throw new CommandError(Code.WriteConflict, 'WriteConflict error: other writers stayed in the way');
      }
      places = again;
      await backOff(round);
      reply = await run(this.#rest(), Buffer.concat(places.map((place) => this.#all()[place]!)));
    }
  }

  /** Adds one round's answer to the total; gives the places that must run again. */
  #add(total: Document, reply: Document, place: (index: number) => number, count?: number): number[] {
    total.n += Number(reply.n);
    if ('nModified' in total) total.nModified += Number(reply.nModified);
    for (const one of (reply.upserted ?? []) as Upserted[]) {
      (total.upserted as Upserted[]).push({ ...one, index: place(one.index) });
    }
    const again: number[] = [];
    for (const failure of (reply.writeErrors ?? []) as Failure[]) {
      if (!this.isConflict(failure.code)) {
        (total.writeErrors as Failure[]).push({ ...failure, index: place(failure.index) });
      } else if (this.command.body.ordered === false) again.push(place(failure.index));
      else for (let at = failure.index; at < (count ?? this.#all().length); at++) again.push(place(at));
    }
    return again;
  }

  /** The operations as they came; those in the command itself are taken out without changing a number's type. */
  #all(): Buffer[] {
    const { sequence, bytes } = this.command;
    this.#operations ??= sequence
      ? splitSequence(sequence)
      : (decodeExactly(bytes)[this.field] as Document[]).map(encode);
    return this.#operations;
  }

  /** The command without its operations. */
  #rest(): Buffer {
    const rest = decodeExactly(this.command.bytes);
    delete rest[this.field];
    return encode(rest);
  }
}

function finished(total: Document): Document {
  (total.writeErrors as Failure[]).sort((a, b) => a.index - b.index);
  (total.upserted as Upserted[]).sort((a, b) => a.index - b.index);
  if ((total.upserted as Upserted[]).length === 0) delete total.upserted;
  return total;
}
