import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { errorText } from '../../src/common/errors.js';
import { RedisLink } from '../../src/common/redis/redis_link.js';
import { TestRedis } from '../support/redis_server.js';
import { waitFor } from '../support/wait_for.js';

describe('a link to a Redis that comes and goes', () => {
  let server: TestRedis;
  let link: RedisLink;
  let told: string[];

  beforeEach(async () => {
    server = await TestRedis.start();
    told = [];
    link = new RedisLink(server.url, (state, error) => void told.push(error ? `${state} ${errorText(error)}` : state));
    await link.tried;
  });
  afterEach(async () => {
    link.close();
    await server.dispose();
  });
  const back = async (): Promise<void> => {
    await server.start();
    await waitFor('the link is up', () => link.up);
  };

  it('a command for a Redis that is away fails at once, and is not sent when it is back', async () => {
    await server.stop();
    await waitFor('it is missed', () => !link.up);
    const begun = performance.now();
    await expect(link.client.incr('n')).rejects.toThrow();
    expect(performance.now() - begun).toBeLessThan(100);
    await back();
    expect(await link.client.exists('n')).toBe(0);
  });

  it('a command whose connection breaks fails, and is not sent again', async () => {
    server.freeze();
    const sent = link.client.incr('n').catch((error: unknown) => error);
    await server.stop();
    expect(await sent).toBeInstanceOf(Error);
    await back();
    expect(await link.client.exists('n')).toBe(0);
  });

  it('a peer that says nothing to a command is given up, and found again', async () => {
    server.freeze();
    await expect(link.client.ping()).rejects.toThrow();
    expect(link.up).toBe(false);
    server.resume();
    await waitFor('the link is up', () => link.up);
    expect(await link.client.ping()).toBe('PONG');
  });

  it('a peer is given up for its own silence alone, not for what the connection before it left unanswered', async () => {
    const client = link.client;
    server.freeze();
    const unanswered = client.ping().catch(() => undefined);
    await server.stop();
    await unanswered;
    await back();
    server.freeze();
    const begun = performance.now();
    await expect(client.ping()).rejects.toThrow();
    expect(performance.now() - begun).toBeGreaterThan(4_990);
  });

  it('tells a change once, however often it tries', async () => {
    await server.stop();
    await waitFor('it is missed', () => link.state === 'down');
    await waitFor(
      'it tried some times',
      () => link.lastError !== undefined && /ECONNREFUSED/.test(link.lastError.message),
    );
    await back();
    link.close();
    await waitFor('it ended', () => link.client.status === 'end');
    expect(told.map((each) => each.split(' ')[0])).toEqual(['up', 'down', 'up']);
  });
});
