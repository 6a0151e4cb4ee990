/** `/jobs/stats` and `/jobs/blocked`. Registered before `/jobs`, whose `:id` would match these paths too. */
import { Get, Inject } from '@nestjs/common';
import { ApiOkResponse, ApiOperation } from '@nestjs/swagger';
import { AdminApi } from '../../common/http/admin_api.decorator.js';
import { AdminQuery } from '../../common/http/admin_input.js';
import { BlockedKeys, type BlockedPage } from './blocked_keys.service.js';
import { BLOCKED_EXAMPLE, BlockedPageDto, BlockedQueryDto, STATS_EXAMPLE, StatsDto } from './overview.dto.js';
import { TargetStates, type Stats } from './target_states.service.js';

@AdminApi({ path: 'jobs', tag: 'jobs' })
export class JobsOverviewController {
  constructor(
    @Inject(TargetStates) private readonly targets: TargetStates,
    @Inject(BlockedKeys) private readonly keys: BlockedKeys,
  ) {}

  @Get('stats')
  @ApiOperation({ summary: 'Counts jobs per status and target; a count that stopped at its limit says so' })
  @ApiOkResponse({ type: StatsDto, example: STATS_EXAMPLE })
  async stats(): Promise<Stats> {
    return this.targets.stats();
  }

  @Get('blocked')
  @ApiOperation({ summary: 'Lists keys whose head waits, so that nothing of them runs' })
  @ApiOkResponse({ type: BlockedPageDto, example: BLOCKED_EXAMPLE })
  async blocked(@AdminQuery(BlockedQueryDto) query: BlockedQueryDto): Promise<BlockedPage> {
    return this.keys.list(query);
  }
}
