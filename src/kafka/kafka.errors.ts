/**
 * Sorts a failed send into the classes of the reference (section 7). Pure. Decides by the chain of causes and by how
 * far the send had come, never by the client's own `retriable`: its "retries exceeded" extends its non-retriable class,
 * and while it reconnects after a failure it replaces the first error by a harmless-looking second one.
 */

/**
 * `connect`: the client was not connected yet. `send`: nothing was written to a socket. `written`: records left this
 * process and no broker has answered. `answered`: a broker has.
 */
export type KafkaPhase = 'connect' | 'send' | 'written' | 'answered';

export type KafkaFailureClass = 'answered' | 'not_sent' | 'unknown' | 'timed_out' | 'invalid';

/** A send that did not succeed, with how far it had come; the client's error is the `cause`. */
export class KafkaSendFailure extends Error {
  constructor(
    readonly phase: KafkaPhase,
    override readonly cause: unknown,
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

/**
 * Answers to a produce request that say: not appended. LEADER_NOT_AVAILABLE is left out on purpose: it answers requests
 * for metadata, such as the client makes after an unclear end, whose error it then hides.
 */
const NOT_WRITTEN_TYPES = new Set(['UNKNOWN_TOPIC_OR_PARTITION', 'NOT_LEADER_FOR_PARTITION', 'NOT_ENOUGH_REPLICAS']);
const TIMED_OUT_TYPES = new Set(['REQUEST_TIMED_OUT', 'NETWORK_EXCEPTION']);
/** The broker refused the record itself. Retriable by name, but waiting would hold every other record for ever. */
const REFUSED_TYPES = new Set(['CORRUPT_MESSAGE']);
const NETWORK_CODES = /^(ECONN|ENOTFOUND|EAI_|EHOST|ENET|ETIMEDOUT|EPIPE)/;

interface ErrorFacts {
  name?: unknown;
  type?: unknown;
  code?: unknown;
  cause?: unknown;
  retriable?: unknown;
  message?: unknown;
}

export function kafkaFailure(error: unknown, phase: KafkaPhase): KafkaFailureClass {
  if (phase === 'connect') return 'not_sent';
  const chain = chainOf(error);
  if (phase === 'written' || chain.some(({ name }) => name === 'KafkaDeadlineExceeded')) return 'unknown';
  const answer = chain.find(({ type }) => typeof type === 'string');
  if (phase === 'answered') return answer ? answeredClass(answer) : 'unknown';
  return answer ? refusedBeforeSend(answer) : unsentClass(chain);
}

function answeredClass({ type, retriable }: ErrorFacts): KafkaFailureClass {
  if (NOT_WRITTEN_TYPES.has(type as string)) return 'not_sent';
  if (TIMED_OUT_TYPES.has(type as string)) return 'timed_out';
  return retriable === false || REFUSED_TYPES.has(type as string) ? 'answered' : 'unknown';
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
