import { describe, expect, it } from '@jest/globals';
import kafkajs from 'kafkajs';
import {
  KafkaDeadlineExceeded,
  KafkaNotCovered,
  KafkaSendFailure,
  kafkaFailure,
  type KafkaPhase,
  type KafkaSendFacts,
} from '../../src/kafka/kafka.errors.js';

const {
  KafkaJSBrokerNotFound,
  KafkaJSConnectionError,
  KafkaJSLockTimeout,
  KafkaJSMetadataNotLoaded,
  KafkaJSNonRetriableError,
  KafkaJSNumberOfRetriesExceeded,
  KafkaJSProtocolError,
  KafkaJSRequestTimeoutError,
  KafkaJSSASLAuthenticationError,
} = kafkajs;

// The declared constructors of the client are narrower than its own calls of them.
type Made = new (message: unknown, options?: unknown) => Error;
const make = (type: unknown, message: unknown, options: unknown = {}): Error => new (type as Made)(message, options);

const CODES: Record<string, number> = {
  CORRUPT_MESSAGE: 2,
  UNKNOWN_TOPIC_OR_PARTITION: 3,
  LEADER_NOT_AVAILABLE: 5,
  NOT_LEADER_FOR_PARTITION: 6,
  REQUEST_TIMED_OUT: 7,
  MESSAGE_TOO_LARGE: 10,
  NETWORK_EXCEPTION: 13,
  NOT_ENOUGH_REPLICAS: 19,
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: 20,
  TOPIC_AUTHORIZATION_FAILED: 29,
};
const protocol = (type: string, retriable: boolean): Error =>
  make(KafkaJSProtocolError, { message: type, type, code: CODES[type], retriable }, { retriable });
/** As the client wraps the last error when it may not try again. */
const exceeded = (cause: Error): Error =>
  make(KafkaJSNumberOfRetriesExceeded, cause, { retryCount: 0, retryTime: 100 });
const refused = make(KafkaJSConnectionError, 'Connection error: connect ECONNREFUSED', { code: 'ECONNREFUSED' });
const closed = make(KafkaJSConnectionError, 'Closed connection');
const timeout = make(KafkaJSRequestTimeoutError, 'Request Produce timed out', {});
const ring = Object.assign(new Error('a'), { cause: undefined as unknown });
ring.cause = ring;

const table: [condition: string, error: unknown, phase: KafkaPhase, expected: string][] = [
  ['the broker finds the message too large', protocol('MESSAGE_TOO_LARGE', false), 'answered', 'answered'],
  ['the topic may not be written to', protocol('TOPIC_AUTHORIZATION_FAILED', false), 'send', 'answered'],
  ['the broker finds the record corrupt', exceeded(protocol('CORRUPT_MESSAGE', true)), 'answered', 'answered'],
  ['an error is not of Kafka', new TypeError('not a string'), 'send', 'answered'],
  ['something that is no error is thrown before the send', 'text', 'send', 'answered'],

  ['the connect fails for whatever reason', new TypeError('boom'), 'connect', 'not_sent'],
  ['the connect runs into our deadline', new KafkaDeadlineExceeded('connect', 1), 'connect', 'not_sent'],
  ['the reconnect is refused before anything was written', exceeded(refused), 'send', 'not_sent'],
  ['a plain socket error ends the reconnect', Object.assign(new Error('x'), { code: 'ENOTFOUND' }), 'send', 'not_sent'],
  ['the broker is not in the metadata', exceeded(make(KafkaJSBrokerNotFound, 'none')), 'send', 'not_sent'],
  ['the metadata is not loaded', exceeded(make(KafkaJSMetadataNotLoaded, 'none')), 'send', 'not_sent'],
  ['the request for metadata timed out', exceeded(timeout), 'send', 'not_sent'],
  ['the client could not get its lock', make(KafkaJSLockTimeout, 'lock'), 'send', 'not_sent'],
  ['the reconnect cannot log in', make(KafkaJSSASLAuthenticationError, 'no'), 'send', 'not_sent'],
  ['the client is stopping', make(KafkaJSNonRetriableError, 'The producer is disconnecting; …'), 'send', 'not_sent'],
  ['the client skips a partition it does not know', new KafkaNotCovered('topic a, partition 9'), 'send', 'not_sent'],
  ['the topic does not exist', exceeded(protocol('UNKNOWN_TOPIC_OR_PARTITION', true)), 'send', 'not_sent'],
  ['a leader is being elected', exceeded(protocol('LEADER_NOT_AVAILABLE', true)), 'send', 'not_sent'],
  ['the leader has moved', exceeded(protocol('NOT_LEADER_FOR_PARTITION', true)), 'answered', 'not_sent'],
  ['there are too few replicas', exceeded(protocol('NOT_ENOUGH_REPLICAS', true)), 'answered', 'not_sent'],

  ['the request to write timed out', exceeded(timeout), 'written', 'unknown'],
  ['the connection broke after the write', exceeded(closed), 'written', 'unknown'],
  ['a refused reconnect hides how the write ended', exceeded(refused), 'written', 'unknown'],
  ['a metadata error hides how the write ended', protocol('UNKNOWN_TOPIC_OR_PARTITION', true), 'written', 'unknown'],
  ['an election hides what was answered', exceeded(protocol('LEADER_NOT_AVAILABLE', true)), 'answered', 'unknown'],
  ['replicas were lost after the append', protocol('NOT_ENOUGH_REPLICAS_AFTER_APPEND', true), 'answered', 'unknown'],
  ['one of two topics is skipped', new KafkaNotCovered('topic a'), 'answered', 'unknown'],
  ['the answer cannot be read', new RangeError('out of bounds'), 'answered', 'unknown'],
  ['our deadline passes during the send', new KafkaDeadlineExceeded('send', 1), 'send', 'unknown'],

  [
    'the broker waited in vain for its replicas',
    exceeded(protocol('REQUEST_TIMED_OUT', true)),
    'answered',
    'timed_out',
  ],
  ['the broker lost its peer', exceeded(protocol('NETWORK_EXCEPTION', true)), 'answered', 'timed_out'],

  ['the client refuses the record', make(KafkaJSNonRetriableError, 'Invalid message without value'), 'send', 'invalid'],
  ['the causes of an error form a ring', ring, 'send', 'answered'],
];

/** As an answer to exactly these records. */
const coded: [condition: string, code: number, error: unknown, expected: string][] = [
  ['a refused reconnect hides a moved leader', 6, exceeded(refused), 'not_sent'],
  ['our deadline passes while the client asks where the leader is', 6, new KafkaDeadlineExceeded('s', 1), 'not_sent'],
  ['a metadata error hides lost replicas', 20, protocol('UNKNOWN_TOPIC_OR_PARTITION', true), 'unknown'],
  ['another topic is closed meanwhile', 20, protocol('TOPIC_AUTHORIZATION_FAILED', false), 'unknown'],
  ['another topic is gone meanwhile', 7, protocol('UNKNOWN_TOPIC_OR_PARTITION', true), 'timed_out'],
  ['a refused reconnect hides a record too large', 10, exceeded(refused), 'unknown'],
  ['the client fails at a record that was written', 0, new TypeError('boom'), 'unknown'],
];

const spread: [condition: string, error: unknown, phase: KafkaPhase, expected: string][] = [
  ['the first partition refuses', protocol('MESSAGE_TOO_LARGE', false), 'answered', 'answered'],
  ['the first partition has moved', protocol('NOT_LEADER_FOR_PARTITION', true), 'answered', 'not_sent'],
  ['another refuses while the first waits', protocol('MESSAGE_TOO_LARGE', false), 'written', 'answered'],
  ['another finds a record corrupt meanwhile', exceeded(protocol('CORRUPT_MESSAGE', true)), 'written', 'answered'],
  ['the first waits when the connection is lost', exceeded(closed), 'written', 'unknown'],
  ['another has moved while the first waits', protocol('NOT_LEADER_FOR_PARTITION', true), 'written', 'unknown'],
];

const classOf = (error: unknown, phase: KafkaPhase, facts?: KafkaSendFacts): string =>
  kafkaFailure(new KafkaSendFailure(phase, error, facts));

/** The broker's own code, where the case says that it answered with this error. */
function codeIn(error: unknown): number | undefined {
  const { code, cause } = error as { code?: unknown; cause?: unknown };
  if (typeof code === 'number') return code;
  return cause instanceof Error && cause !== error ? codeIn(cause) : undefined;
}

describe('the class of a failed Kafka send', () => {
  it.each(table)('when %s', (_, error, phase, expected) => {
    expect(classOf(error, phase, { code: phase === 'answered' ? codeIn(error) : undefined })).toBe(expected);
  });

  it.each(coded)('when %s (answered: %d)', (_, code, error, expected) => {
    expect(classOf(error, 'answered', { code })).toBe(expected);
  });

  it.each(table.filter(([, , phase]) => phase === 'answered'))(
    'is unknown without the code of the answer, when %s',
    (_, error) => expect(classOf(error, 'answered')).toBe('unknown'),
  );

  it.each(spread)('of a send over several partitions, when %s', (_, error, phase, expected) => {
    expect(classOf(error, phase, { spread: true })).toBe(expected);
  });
});
