/** Number of records in a topic, once its broker serves every partition: metadata name a leader before it answers. */
import type { Admin } from 'kafkajs';
import { setTimeout as delay } from 'node:timers/promises';

export async function sizeOfTopic(admin: Admin, topic: string, deadlineMs = 15_000): Promise<number> {
  const end = performance.now() + deadlineMs;
  for (;;) {
    try {
      const offsets = await admin.fetchTopicOffsets(topic);
      return offsets.reduce((sum, { high }) => sum + Number(high), 0);
    } catch (error) {
      if (performance.now() > end) throw error;
      await delay(50);
    }
  }
}
