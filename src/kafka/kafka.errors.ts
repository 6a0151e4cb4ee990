/**
 * Sorts a failed send into the classes of the reference (section 7). Pure. Decides by how far the send had come and by
 * what the broker answered. The client's error alone proves nothing: its "retries exceeded" extends its non-retriable
 * class, and while it reconnects or asks for metadata after a failure it replaces the first error by a harmless-looking
 * second one, which may speak of another topic.
 */

/**
 * `connect`: the client was not connected yet. `send`: nothing was written to a socket. `written`: records left this
 * process and no broker has answered. `answered`: a broker has.
 */
export type KafkaPhase = 'connect' | 'send' | 'written' | 'answered';

export type KafkaFailureClass = 'answered' | 'not_sent' | 'unknown' | 'timed_out' | 'invalid';

/** What is known of a send besides the client's error. */
export interface KafkaSendFacts {
  /** The error code that the broker answered to exactly these records. */
  readonly code?: number | undefined;
  /** One call for records of several partitions: at least once only, so that a wrong reading costs a resend at most. */
  readonly spread?: boolean;
}

/** A send that did not succeed, with how far it had come; the client's error is the `cause`. */
export class KafkaSendFailure extends Error {
  constructor(
    readonly phase: KafkaPhase,
    override readonly cause: unknown,
    readonly facts: KafkaSendFacts = {},
  ) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.name = 'KafkaSendFailure';
  }
}

/** Our own deadline ran out. The client may still be at work, so what it does later is unknown. */
export class KafkaDeadlineExceeded extends Error {
  constructor(what: string, ms: number) {
    super(`${what}: no answer within ${ms} ms`);
    this.name = 'KafkaDeadlineExceeded';
  }
}

/** A send that resolved without a word on some of its records: the client skips a partition that it does not know. */
export class KafkaNotCovered extends Error {
  constructor(where: string) {
    super(`Kafka answered without a word on ${where}`);
    this.name = 'KafkaNotCovered';
  }
}

/** Answers to a produce request that say: not appended. UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, NOT_ENOUGH_REPLICAS. */
const NOT_WRITTEN = new Set<unknown>([3, 6, 19]);
/** REQUEST_TIMED_OUT, NETWORK_EXCEPTION. */
const TIMED_OUT = new Set<unknown>([7, 13]);
/** CORRUPT_MESSAGE: the broker refused the record itself. Retriable by name, but waiting would hold every other record. */
const REFUSED = new Set<unknown>([2]);
const NETWORK_CODES = /^(ECONN|ENOTFOUND|EAI_|EHOST|ENET|ETIMEDOUT|EPIPE)/;

interface ErrorFacts {
  name?: unknown;
  type?: unknown;
  code?: unknown;
  cause?: unknown;
  retriable?: unknown;
  message?: unknown;
}

export function kafkaFailure({ phase, cause, facts }: KafkaSendFailure): KafkaFailureClass {
  if (phase === 'connect') return 'not_sent';
  const chain = chainOf(cause);
  if (facts.code !== undefined) return answeredClass(facts.code, chain);
  if (chain.some(({ name }) => name === 'KafkaDeadlineExceeded')) return 'unknown';
  const said = chain.find(({ type }) => typeof type === 'string');
  if (phase === 'send') return said ? refusedBeforeSend(said) : unsentClass(chain);
  // Without the broker's own code the client's error may speak of another topic.
  if (!facts.spread || !said) return 'unknown';
  const answer = answeredClass(said.code, chain);
  // One broker has refused while another, with the records that are watched, is still to answer.
  return phase === 'answered' || answer === 'answered' ? answer : 'unknown';
}

/** The client does not retry, so what a broker has answered is final, however long the client takes to say so. */
function answeredClass(code: unknown, chain: readonly ErrorFacts[]): KafkaFailureClass {
  if (NOT_WRITTEN.has(code)) return 'not_sent';
  if (TIMED_OUT.has(code)) return 'timed_out';
  const said = chain.find(({ type, code: own }) => typeof type === 'string' && own === code);
  return said?.retriable === false || REFUSED.has(code) ? 'answered' : 'unknown';
}

/** Nothing was written, so this answers a request for metadata. */
function refusedBeforeSend({ retriable }: ErrorFacts): KafkaFailureClass {
  return retriable === false ? 'answered' : 'not_sent';
}

function unsentClass(chain: readonly ErrorFacts[]): KafkaFailureClass {
  const root = chain.at(-1);
  if (root?.name === 'KafkaJSNonRetriableError') {
    // What the client says of itself while it stops is nothing about the record.
    return /disconnecting/.test(String(root.message)) ? 'not_sent' : 'invalid';
  }
  if (typeof root?.name === 'string' && root.name.startsWith('KafkaJS')) return 'not_sent';
  if (root?.name === 'KafkaNotCovered') return 'not_sent';
  return NETWORK_CODES.test(String(root?.code)) ? 'not_sent' : 'answered';
}

/** The error and its causes, outermost first; an end even where causes form a ring. */
function chainOf(error: unknown): ErrorFacts[] {
  const chain: ErrorFacts[] = [];
  for (let at = error; typeof at === 'object' && at !== null && chain.length < 10; at = (at as ErrorFacts).cause) {
    if (chain.includes(at)) break;
    chain.push(at);
  }
  return chain;
}
