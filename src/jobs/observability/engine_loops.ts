/**
 * Every background loop of this pod, by name, for health and metrics. A loop that nobody added here may stop unnoticed:
 * whoever makes a `RunLoop` adds it. Never starts or stops one.
 */
import { Injectable } from '@nestjs/common';
import type { RunLoop } from '../../common/run_loop.js';

@Injectable()
export class EngineLoops {
  private readonly loops = new Map<string, RunLoop>();

  add(...loops: readonly RunLoop[]): void {
    for (const loop of loops) this.loops.set(loop.name, loop);
  }

  all(): RunLoop[] {
    return [...this.loops.values()];
  }
}
