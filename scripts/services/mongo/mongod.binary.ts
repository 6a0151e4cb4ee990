// Where a real mongod comes from: the PATH, an earlier download, or the download host when it answers quickly. Never
// waits for a network that does not answer.
import { DryMongoBinary } from 'mongodb-memory-server-core/lib/util/DryMongoBinary.js';
import type { MongoBinaryOpts } from 'mongodb-memory-server-core/lib/util/MongoBinary.js';
import { onPath } from '../debian.packages.js';

const VERSION = '7.0.24';
const DOWNLOAD_HOST = 'https://fastdl.mongodb.org';
const PROBE_MS = 2_000;

export function mongodBinary(): MongoBinaryOpts {
  const systemBinary = onPath('mongod');
  return systemBinary === undefined ? { version: VERSION } : { systemBinary };
}

export async function mongodUnavailable(): Promise<string | undefined> {
  if (onPath('mongod') !== undefined) return undefined;
  if ((await DryMongoBinary.locateBinary({ version: VERSION })) !== undefined) return undefined;
  const host = process.env.MONGOMS_DOWNLOAD_MIRROR ?? DOWNLOAD_HOST;
  return (await reachable(host)) ? undefined : 'no mongod on the PATH and its download host does not answer';
}

/** Any answer counts: what matters is that the way there is open. */
async function reachable(url: string): Promise<boolean> {
  try {
    const answer = await fetch(url, { method: 'HEAD', redirect: 'manual', signal: AbortSignal.timeout(PROBE_MS) });
    await answer.body?.cancel();
    return true;
  } catch {
    return false;
  }
}
